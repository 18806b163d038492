package gate

import (
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// idleWriter has the shape of Caddy's idle-timeout writer: it moves the
// connection's deadline before every write, and its own fields belong to the
// goroutine that writes.
type idleWriter struct {
	http.ResponseWriter
	ceiling time.Time
	before  func() // called between moving the deadline and writing
}

func (w *idleWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *idleWriter) SetWriteDeadline(t time.Time) error {
	w.ceiling = t
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(t)
}

func (w *idleWriter) Write(b []byte) (int, error) {
	if w.before != nil {
		w.before()
	}
	by := time.Now().Add(time.Hour)
	if !w.ceiling.IsZero() && w.ceiling.Before(by) {
		by = w.ceiling
	}
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(by)
	return w.ResponseWriter.Write(b)
}

// TestCutHoldsAgainstAnIdleWriter: a deadline ends a download that its client
// does not read although a writer in between moves the connection's deadline,
// also when it does so right after the cut, and the gate touches no field that
// belongs to the writing goroutine (the race detector sees to that).
func TestCutHoldsAgainstAnIdleWriter(t *testing.T) {
	const limit = 10 * time.Second
	for name, late := range map[string]bool{"before the cut": false, "after the cut": true} {
		t.Run(name, func(t *testing.T) {
			deadline := admission.Duration(limit)
			cfg := admission.Config{Classes: map[string]*admission.ClassConfig{"anonymous": {Deadline: &deadline, Stall: ptr(admission.Duration(time.Hour))}}}
			big := func(w http.ResponseWriter, r *http.Request) error {
				for {
					if _, err := w.Write(make([]byte, 32<<10)); err != nil {
						return err
					}
				}
			}
			synctest.Test(t, func(t *testing.T) {
				policy, _ := cfg.Compile()
				state := NewState(policy)
				g, err := New(state, Options{})
				if err != nil {
					t.Fatal(err)
				}
				l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
				srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					idle := &idleWriter{ResponseWriter: w}
					if late {
						idle.before = func() { time.Sleep(limit + time.Millisecond) } // straddles the cut
					}
					_ = g.Serve(idle, r, big)
				})}
				go func() { _ = srv.Serve(l) }()
				client, server := net.Pipe()
				l.conns <- server
				go func() { _, _ = io.WriteString(client, post(pushRPC, 4, "0000")) }()
				time.Sleep(limit + 5*time.Second)
				synctest.Wait()
				s := state.Controller.Snapshot()
				if n := s.Classes[admission.Anonymous].InUse; n != 0 {
					t.Errorf("%d in use five seconds after the deadline", n)
				}
				if s.Outcomes[admission.Anonymous][admission.OutcomeDeadline] != 1 {
					t.Error("the outcome is not deadline")
				}
				_, _ = client.Close(), srv.Close()
			})
		})
	}
}

// TestCutEndsAHandlerThatIgnoresItsContext: the client reads as fast as it can,
// so no deadline of the connection bites; the next write ends the request.
func TestCutEndsAHandlerThatIgnoresItsContext(t *testing.T) {
	const limit, step = 10 * time.Second, 10 * time.Millisecond
	deadline := admission.Duration(limit)
	cfg := admission.Config{Classes: map[string]*admission.ClassConfig{"anonymous": {Deadline: &deadline, Stall: ptr(admission.Duration(time.Hour))}}}
	start, took := time.Time{}, time.Duration(0)
	deaf := func(w http.ResponseWriter, _ *http.Request) error {
		start = time.Now()
		defer func() { took = time.Since(start) }()
		for {
			time.Sleep(step) // its own work
			if _, err := w.Write([]byte("more")); err != nil {
				return err
			}
		}
	}
	inBubble(t, cfg, deaf, func(t *testing.T, b *bubble) {
		c := b.send(post(pushRPC, 4, "0000"))
		_, _ = io.Copy(io.Discard, c)
		synctest.Wait()
		if took < limit || took > limit+2*step {
			t.Errorf("the handler went on for %v, want to be ended within two steps of %v after %v", took, step, limit)
		}
		_ = c.Close()
	})
}
