package harness

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a server started by a test. Its output is kept and printed when the test fails.
type Process struct {
	cmd    *exec.Cmd
	name   string
	output *lockedBuffer
	done   chan struct{} // closed when the process has ended
	err    error         // valid once done is closed
}

// startProcess starts cmd in its own process group; it is ended with the test, and with the test binary should that die first.
func startProcess(tb testing.TB, name string, cmd *exec.Cmd) *Process {
	tb.Helper()
	p := &Process{cmd: cmd, name: name, output: &lockedBuffer{}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.output, p.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	// The parent-death signal is tied to the thread that forks; a goroutine that stays until the end keeps that thread.
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
		close(p.done)
	}()
	if err := <-started; err != nil {
		tb.Fatalf("start %s: %v", name, err)
	}
	tb.Cleanup(func() {
		p.Stop(tb)
		if tb.Failed() {
			tb.Logf("---- %s\n%s", name, tail(shorten(p.Output()), 8000))
		}
	})
	return p
}

// Output returns what the process has written so far.
func (p *Process) Output() string { return p.output.String() }

// Ended reports whether the process has ended, and how.
func (p *Process) Ended() (bool, error) {
	select {
	case <-p.done:
		return true, p.err
	default:
		return false, nil
	}
}

// Stop asks the process to end, and kills its group when it has not within 30 seconds. It may be called again.
func (p *Process) Stop(tb testing.TB) {
	tb.Helper()
	if ended, _ := p.Ended(); ended {
		return
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		tb.Errorf("%s did not end within 30 s of SIGTERM", p.name)
		p.Kill()
	}
}

// Kill ends the process and its children at once, as a crash would, and waits for it to be gone.
func (p *Process) Kill() {
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// waitReady waits until probe succeeds; a process that ends first fails the test at once.
func (p *Process) waitReady(tb testing.TB, limit time.Duration, probe func() error) {
	tb.Helper()
	errEnded := errors.New("ended")
	err := eventually(limit, func() error {
		if ended, err := p.Ended(); ended {
			tb.Fatalf("%s ended before it was ready: %v", p.name, errors.Join(errEnded, err))
		}
		return probe()
	})
	if err != nil {
		tb.Fatalf("%s not ready within %v: %v", p.name, limit, err)
	}
}

// lockedBuffer is a bytes.Buffer for use by several goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return fmt.Sprintf("… %d bytes left out …\n%s", len(s)-n, s[len(s)-n:])
}

// shorten cuts long lines and leaves out Caddy's lines of level info.
func shorten(output string) string {
	var b strings.Builder
	for line := range strings.Lines(output) {
		if strings.Contains(line, `"level":"info"`) {
			continue
		}
		if len(line) > 400 {
			line = line[:200] + " … " + line[len(line)-200:]
		}
		b.WriteString(line)
	}
	return b.String()
}

// writeFile writes a file of a test and fails the test when it cannot.
func writeFile(tb testing.TB, path, content string, mode os.FileMode) {
	tb.Helper()
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		tb.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		tb.Fatal(err)
	}
}

// WriteFile writes a file that every user may read, and fails the test when it cannot.
func WriteFile(tb testing.TB, path, content string) {
	tb.Helper()
	writeFile(tb, path, content, 0o644)
}

// WriteSecret writes a file that only its owner may read, and fails the test when it cannot.
func WriteSecret(tb testing.TB, path, content string) {
	tb.Helper()
	writeFile(tb, path, content, 0o600)
}

// Terminate asks the process to end and returns at once.
func (p *Process) Terminate() { p.cmd.Process.Signal(syscall.SIGTERM) }

// WaitEnd waits until the process has ended.
func (p *Process) WaitEnd(tb testing.TB, limit time.Duration) {
	tb.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		tb.Fatalf("%s still runs after %v", p.name, limit)
	}
}
