package gate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/internal/scenario"
)

// TestScenarios plays testdata/scenarios/*.txt against a whole server. Their
// steps:
//
//	config JSON                     starts the server
//	clone NAME ADDRESS RATE         sends a fetch and reads RATE bytes a second of the answer; 0 reads nothing
//	hangup NAME                     closes the client's connection
//	finish NAME                     lets the server behind end that answer
//	sleep DURATION
//	state CLASS                     permits in use, abandoned, waiting, and how many ended how
func TestScenarios(t *testing.T) {
	scenario.Test(t, func(t *testing.T) scenario.Player {
		s := &stage{t: t, conns: map[string]net.Conn{}, ends: map[string]chan struct{}{}}
		return scenario.Player{Step: func(line string) string { return s.step(strings.Fields(line)) }, End: s.end}
	})
}

// stage is one running scenario. mu protects what follows it.
type stage struct {
	t     *testing.T
	l     *pipeListener
	srv   *http.Server
	state *State
	conns map[string]net.Conn
	ends  map[string]chan struct{}

	mu      sync.Mutex
	reports []string
}

func (s *stage) end() {
	for name, c := range s.conns {
		_ = c.Close()
		s.finish(name)
	}
	_ = s.srv.Close()
	synctest.Wait()
	time.Sleep(time.Minute)
	for _, c := range s.state.Controller.Snapshot().Classes {
		if c.InUse+c.Abandoned+c.Waiting != 0 {
			s.t.Errorf("class %s ends with %d in use, %d abandoned, %d waiting", c.Class, c.InUse, c.Abandoned, c.Waiting)
		}
	}
}

func (s *stage) report(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports = append(s.reports, fmt.Sprintf(format, args...))
}

func (s *stage) step(f []string) (out string) {
	switch f[0] {
	case "config":
		s.config(strings.Join(f[1:], " "))
	case "clone":
		rate, err := strconv.Atoi(f[3])
		if err != nil {
			s.t.Fatal(err)
		}
		s.clone(f[1], f[2], rate)
	case "hangup":
		_ = s.conns[f[1]].Close()
	case "finish":
		s.finish(f[1])
	case "sleep":
		d, err := time.ParseDuration(f[1])
		if err != nil {
			s.t.Fatal(err)
		}
		time.Sleep(d)
	case "state":
		out = s.show(f[1])
	default:
		s.t.Fatalf("unknown step %q", f)
	}
	synctest.Wait()
	time.Sleep(time.Millisecond) // off the beat of readers and writers, so that nothing happens just now
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.reports)
	for _, r := range s.reports {
		out += r + "\n"
	}
	s.reports = nil
	return out
}

func (s *stage) config(text string) {
	var cfg admission.Config
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		s.t.Fatal(err)
	}
	policy, problems := cfg.Compile()
	if policy == nil {
		s.t.Fatal(problems)
	}
	s.state = NewState(policy)
	g, err := New(s.state, Options{ClientIP: testAddr})
	if err != nil {
		s.t.Fatal(err)
	}
	s.l = &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	s.srv = &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = g.Serve(w, r, s.upstream)
	})}
	go func() { _ = s.srv.Serve(s.l) }()
}

// upstream writes without an end, 32 KiB at a time as a proxy does, until it is
// told to finish or nobody takes it any more. A pause between two pieces lets fake
// time go on where the answer is dropped.
func (s *stage) upstream(w http.ResponseWriter, r *http.Request) error {
	name := r.Header.Get("X-Name")
	s.mu.Lock()
	end := s.ends[name]
	s.mu.Unlock()
	w.WriteHeader(http.StatusOK)
	for piece := make([]byte, 32<<10); ; {
		select {
		case <-end:
			return nil
		case <-r.Context().Done():
			return r.Context().Err()
		case <-time.After(50 * time.Millisecond):
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
}

func (s *stage) clone(name, addr string, rate int) {
	client, server := net.Pipe()
	s.mu.Lock()
	s.conns[name], s.ends[name] = client, make(chan struct{})
	s.mu.Unlock()
	s.l.conns <- server
	raw := strings.Replace(post(readRPC, 4, "0000"), "\r\n\r\n", "\r\nX-Name: "+name+"\r\nX-Test-Addr: "+addr+"\r\n\r\n", 1)
	go func() { _, _ = io.WriteString(client, raw) }()
	go func() {
		r, err := http.ReadResponse(bufio.NewReaderSize(client, 16), nil)
		if err != nil {
			s.report("%s: no answer", name)
			return
		}
		if r.StatusCode != http.StatusOK {
			s.report("%s: %d %s", name, r.StatusCode, r.Header.Get(HeaderRefused))
			return
		}
		s.report("%s: reads", name)
		for ; rate > 0; time.Sleep(time.Second) {
			if _, err := io.CopyN(io.Discard, r.Body, int64(rate)); err == io.EOF {
				s.report("%s: done", name)
				return
			} else if err != nil {
				s.report("%s: cut off", name)
				return
			}
		}
	}()
}

func (s *stage) finish(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if end := s.ends[name]; end != nil {
		close(end)
		s.ends[name] = nil
	}
}

func (s *stage) show(name string) string {
	class, ok := admission.ParseClass(name)
	if !ok {
		s.t.Fatalf("unknown class %q", name)
	}
	all := s.state.Controller.Snapshot()
	c := all.Classes[class]
	out := fmt.Sprintf("%s: %d in use, %d abandoned, %d waiting", class, c.InUse, c.Abandoned, c.Waiting)
	for o := range admission.NumOutcomes {
		if n := all.Outcomes[class][o]; n > 0 {
			out += fmt.Sprintf(", %d %s", n, o)
		}
	}
	return out + fmt.Sprintf(", %d cut\n", s.state.AbandonedCut())
}
