package flood

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// Server is a command that serves until it is ended.
type Server struct {
	Command []string
	Env     []string // besides this process's
}

// Start runs s and waits until addr (host:port) accepts connections. stop ends
// it with its children and waits for that; so does the end of ctx. On Linux it
// does not outlive this process either.
func (s Server) Start(ctx context.Context, addr string) (pid int, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, s.Command[0], s.Command[1:]...)
	OwnGroup(cmd)
	dieWithParent(cmd)
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = append(os.Environ(), s.Env...)
	said := &tail{}
	cmd.Stdout, cmd.Stderr = said, said
	started, ended := make(chan error), make(chan struct{})
	var end error // valid once ended is closed
	go func() {
		runtime.LockOSThread() // the kernel ties a parent's death to the thread that forks
		err := cmd.Start()
		started <- err
		if err == nil {
			end = cmd.Wait()
		}
		close(ended)
	}()
	stop = func() { cancel(); <-ended }
	if err := <-started; err != nil {
		stop()
		return 0, nil, err
	}
	if err := WaitListening(ctx, addr, ended); err != nil {
		stop()
		return 0, nil, fmt.Errorf("%s did not start: %w: %w: %s", s.Command[0], err, end, said)
	}
	return cmd.Process.Pid, stop, nil
}

// tail keeps the last 8 KiB written to it.
type tail struct {
	mu  sync.Mutex // protects buf
	buf bytes.Buffer
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(p)
	if over := t.buf.Len() - 8<<10; over > 0 {
		t.buf.Next(over)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}
