package gate

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// oneAtATime is a server with one place that lists refs at once and takes a second for everything else.
func oneAtATime(t *testing.T) *Gate {
	t.Helper()
	one, none := 1, 0
	cfg := admission.Config{Classes: map[string]*admission.ClassConfig{"anonymous": {Max: &one, CallerMax: &none}}}
	policy, problems := cfg.Compile()
	if policy == nil {
		t.Fatal(problems)
	}
	g, err := New(NewState(policy), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func second(w http.ResponseWriter, r *http.Request) error {
	if r.Method == http.MethodPost {
		time.Sleep(time.Second) // of the bubble's clock
		return nil
	}
	w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
	_, _ = io.WriteString(w, pkt("# service=git-upload-pack\n")+"0000"+pkt("version 2\n")+"0000")
	return nil
}

// player is a client at one address.
type player struct {
	g    *Gate
	addr string
}

// list begins a clone or fetch; send goes on with it and returns the status.
func (p player) list(repo string) int {
	return p.serve(httptest.NewRequest("GET", repo+"/info/refs?service=git-upload-pack", nil))
}

func (p player) send(repo, body string) int {
	r := httptest.NewRequest("POST", repo+"/git-upload-pack", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-git-upload-pack-request")
	return p.serve(r)
}

func (p player) serve(r *http.Request) int {
	r.RemoteAddr = p.addr + ":4000"
	w := httptest.NewRecorder()
	_ = p.g.Serve(w, r, second)
	return w.Code
}

// Continuations go before newcomers, so somebody who opens every grant he can, spends all of them at once, and negotiates
// without end, could try to keep everybody else waiting. He takes his turns, no more: who comes new waits for the request that
// runs and one turn of his among the newcomers, with two continuations before each; who finishes what he started waits for the
// one that runs, one of his, and at most one newcomer.
func TestGamingDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := oneAtATime(t)
		begin := player{g, "192.0.2.1"}
		var games sync.WaitGroup
		for i := range grantsPerOwner {
			repo := fmt.Sprintf("/r%d.git", i)
			if code := begin.list(repo); code != 200 {
				t.Fatalf("refs: %d", code)
			}
			games.Go(func() { begin.send(repo, fetch("want "+oid, "done")) })
			for range grantRounds {
				games.Go(func() { begin.send(repo, fetch("want "+oid, "have "+oid)) })
			}
		}
		synctest.Wait()
		games.Go(func() { // and endless rounds: each begins when the one before is over
			for range 100 {
				begin.send("/r0.git", fetch("want "+oid, "have "+oid))
			}
		})
		time.Sleep(100 * time.Millisecond)
		if n := g.state.Controller.Snapshot().Classes[admission.Anonymous].Waiting; n < 32 {
			t.Fatalf("%d wait; the test is about a full queue", n)
		}

		honest := func(name, addr string, started bool, most time.Duration) {
			p := player{g, addr}
			if started {
				p.list("/r0.git")
			}
			start := time.Now()
			code := p.send("/r0.git", fetch("want "+oid, "done"))
			if took := time.Since(start); code != 200 || took > most {
				t.Errorf("%s: %d after %v, want 200 within %v", name, code, took, most)
			}
		}
		var others sync.WaitGroup
		others.Go(func() { honest("new", "203.0.113.1", false, 7*time.Second) })
		others.Go(func() { honest("finishing", "203.0.114.1", true, 4*time.Second) })
		others.Wait()
		games.Wait()
	})
}

// Discovery requests that never continue hold nothing: 2,000 addresses begin and stay away, and who begins after them is
// served at once.
func TestUnusedGrantsHoldNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := oneAtATime(t)
		for i := range 2000 {
			if code := (player{g, fmt.Sprintf("10.%d.%d.1", i/250, i%250)}).list("/r0.git"); code != 200 {
				t.Fatalf("refs %d: %d", i, code)
			}
		}
		for _, p := range []player{{g, "192.0.2.1"}, {g, "192.0.2.2"}} {
			start := time.Now()
			p.list("/r0.git")
			if code, took := p.send("/r0.git", fetch("want "+oid, "done")), time.Since(start); code != 200 || took != time.Second {
				t.Errorf("%s: %d after %v, want 200 after a second", p.addr, code, took)
			}
		}
	})
}
