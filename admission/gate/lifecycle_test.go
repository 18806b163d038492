package gate

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// pipeListener hands out in-memory connections, so that a whole server lives
// inside a synctest bubble.
type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// bubble is a server and its gate inside a synctest bubble.
type bubble struct {
	t     *testing.T
	l     *pipeListener
	state *State
}

func inBubble(t *testing.T, cfg admission.Config, next Next, f func(t *testing.T, b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		policy, problems := cfg.Compile()
		if policy == nil {
			t.Fatal(problems)
		}
		b := &bubble{t: t, l: &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}, state: NewState(policy)}
		g, err := New(b.state, Options{})
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := g.Serve(w, r, next); err != nil {
				w.WriteHeader(http.StatusBadGateway)
			}
		})}
		go func() { _ = srv.Serve(b.l) }()
		f(t, b)
		_ = srv.Close()
		synctest.Wait()
		for _, c := range b.state.Controller.Snapshot().Classes {
			if c.InUse != 0 || c.Waiting != 0 || c.Abandoned != 0 {
				t.Errorf("class %s ends with %d in use, %d waiting, %d abandoned", c.Class, c.InUse, c.Waiting, c.Abandoned)
			}
		}
	})
}

// send opens a connection and writes raw request bytes.
func (b *bubble) send(raw string) net.Conn {
	client, server := net.Pipe()
	b.l.conns <- server
	go func() { _, _ = io.WriteString(client, raw) }()
	return client
}

func status(t *testing.T, c net.Conn) (int, string) {
	t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err.Error()
	}
	body, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(body)
}

func post(path string, length int, body string) string {
	service := path[strings.LastIndex(path, "/")+1:]
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-%s-request\r\nContent-Length: %d\r\n\r\n%s", path, service, length, body)
}

func (b *bubble) outcome(c admission.Class, o admission.Outcome) uint64 {
	return b.state.Controller.Snapshot().Outcomes[c][o]
}

func waitForEnd(_ http.ResponseWriter, r *http.Request) error {
	<-r.Context().Done()
	return r.Context().Err()
}

func TestDeadlineToTheFirstByte(t *testing.T) {
	inBubble(t, admission.Config{}, waitForEnd, func(t *testing.T, b *bubble) {
		start := time.Now()
		code, body := status(t, b.send("GET "+readRefs+" HTTP/1.1\r\nHost: x\r\n\r\n"))
		if took := time.Since(start); code != http.StatusGatewayTimeout || took != 10*time.Second {
			t.Errorf("%d %q after %v, want 504 after 10 s", code, body, took)
		}
		if b.outcome(admission.Discovery, admission.OutcomeDeadline) != 1 {
			t.Error("the outcome is not deadline")
		}
	})
}

// A clone that began in time may go on for longer than discovery's deadline.
func TestDeadlineEndsAtTheFirstByte(t *testing.T) {
	slow := func(w http.ResponseWriter, r *http.Request) error {
		w.WriteHeader(http.StatusOK)
		select {
		case <-time.After(time.Minute):
		case <-r.Context().Done():
		}
		_, err := io.WriteString(w, "done")
		return err
	}
	inBubble(t, admission.Config{}, slow, func(t *testing.T, b *bubble) {
		if code, body := status(t, b.send("GET "+readRefs+" HTTP/1.1\r\nHost: x\r\n\r\n")); code != 200 || body != "done" {
			t.Errorf("%d %q", code, body)
		}
	})
}

func TestStalledPushIsEnded(t *testing.T) {
	read := func(_ http.ResponseWriter, r *http.Request) error {
		_, err := io.Copy(io.Discard, r.Body)
		return err
	}
	inBubble(t, admission.Config{}, read, func(t *testing.T, b *bubble) {
		start := time.Now()
		code, _ := status(t, b.send(post(pushRPC, 1000, "7 bytes")))
		if took := time.Since(start); code != http.StatusRequestTimeout || took > 90*time.Second {
			t.Errorf("%d after %v, want 408 within 90 s", code, took)
		}
		if b.outcome(admission.Anonymous, admission.OutcomeStalled) != 1 {
			t.Error("the outcome is not stalled")
		}
	})
}

// A slow but steady client is not a stalled one.
func TestSlowClientIsNotStalled(t *testing.T) {
	var got int64
	read := func(_ http.ResponseWriter, r *http.Request) (err error) {
		got, err = io.Copy(io.Discard, r.Body)
		return err
	}
	inBubble(t, admission.Config{}, read, func(t *testing.T, b *bubble) {
		c := b.send(post(pushRPC, 20, ""))
		go func() {
			for range 20 {
				time.Sleep(45 * time.Second)
				_, _ = io.WriteString(c, "x")
			}
		}()
		if code, _ := status(t, c); code != 200 || got != 20 {
			t.Errorf("%d, %d bytes", code, got)
		}
	})
}

func TestStalledReaderIsEnded(t *testing.T) {
	big := func(w http.ResponseWriter, r *http.Request) error {
		for {
			if _, err := w.Write(make([]byte, 32<<10)); err != nil {
				return err
			}
		}
	}
	inBubble(t, admission.Config{}, big, func(t *testing.T, b *bubble) {
		c := b.send(post(pushRPC, 4, "0000"))
		_, _ = io.ReadFull(c, make([]byte, 100_000))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := b.state.Controller.Snapshot().Classes[admission.Anonymous].InUse; n != 0 {
			t.Errorf("%d in use two minutes after the reader stopped", n)
		}
		if b.outcome(admission.Anonymous, admission.OutcomeStalled) != 1 {
			t.Error("the outcome is not stalled")
		}
		_ = c.Close()
	})
}

// 160 stalled fetches once made a real push wait 18.8 s on Apache: none of
// them may reach the upstream or hold a place.
func TestStalledFetchNeverReachesTheUpstream(t *testing.T) {
	inBubble(t, admission.Config{}, func(http.ResponseWriter, *http.Request) error {
		t.Error("a fetch whose body did not come reached the upstream")
		return nil
	}, func(t *testing.T, b *bubble) {
		c := b.send(post(readRPC, 1000, "7 bytes"))
		time.Sleep(time.Second)
		synctest.Wait()
		if n := b.state.Controller.Snapshot().InUse; n != 0 {
			t.Errorf("%d places held by a body that does not come", n)
		}
		if code, _ := status(t, c); code != http.StatusRequestTimeout {
			t.Errorf("%d, want 408", code)
		}
	})
}

func TestPanicFreesThePermit(t *testing.T) {
	for _, value := range []any{errors.New("a bug"), http.ErrAbortHandler} {
		seen := make(chan any, 1)
		outer := func(w http.ResponseWriter, r *http.Request) error { panic(value) }
		inBubble(t, admission.Config{}, outer, func(t *testing.T, b *bubble) {
			g, _ := New(b.state, Options{})
			func() {
				defer func() { seen <- recover() }()
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, readRefs, nil)
				r.RemoteAddr = "192.0.2.1:1"
				_ = g.Serve(&discard{}, r, outer)
			}()
			if p := <-seen; p != value {
				t.Errorf("the panic came out as %v, want %v", p, value)
			}
			want := admission.OutcomePanic
			if value == http.ErrAbortHandler {
				want = admission.OutcomeUpstreamFailed
			}
			if b.outcome(admission.Discovery, want) != 1 {
				t.Errorf("the outcome is not %v", want)
			}
		})
	}
}

type discard struct{ h http.Header }

func (d *discard) Header() http.Header {
	if d.h == nil {
		d.h = http.Header{}
	}
	return d.h
}
func (*discard) Write(b []byte) (int, error) { return len(b), nil }
func (*discard) WriteHeader(int)             {}

func TestClientGoneFreesThePermit(t *testing.T) {
	inBubble(t, admission.Config{}, waitForEnd, func(t *testing.T, b *bubble) {
		c := b.send("GET " + readRefs + " HTTP/1.1\r\nHost: x\r\n\r\n")
		time.Sleep(time.Second)
		_ = c.Close()
		synctest.Wait()
		if n := b.state.Controller.Snapshot().InUse; n != 0 {
			t.Errorf("%d in use after the client left", n)
		}
		if b.outcome(admission.Discovery, admission.OutcomeClientGone) != 1 {
			t.Error("the outcome is not client_gone")
		}
	})
}

// TestWaiting: what could wait is not refused, in turn, and a waiter that
// leaves frees its place.
func TestWaiting(t *testing.T) {
	var release chan struct{}
	next := func(w http.ResponseWriter, r *http.Request) error {
		select {
		case <-release:
		case <-r.Context().Done():
		}
		return nil
	}
	one := 1
	cfg := admission.Config{Classes: map[string]*admission.ClassConfig{"anonymous": {Max: &one, CallerMax: &one}}}
	inBubble(t, cfg, next, func(t *testing.T, b *bubble) {
		release = make(chan struct{}) // of this bubble
		first := b.send(post(readRPC, 4, "0000"))
		time.Sleep(time.Second)
		second, third := b.send(post(readRPC, 4, "0000")), b.send(post(readRPC, 4, "0000"))
		time.Sleep(time.Second)
		synctest.Wait()
		if c := b.state.Controller.Snapshot().Classes[admission.Anonymous]; c.InUse != 1 || c.Waiting != 2 {
			t.Fatalf("%d in use, %d waiting", c.InUse, c.Waiting)
		}
		_ = third.Close()
		synctest.Wait()
		if n := b.state.Controller.Snapshot().Classes[admission.Anonymous].Waiting; n != 1 {
			t.Errorf("%d waiting after one left", n)
		}
		close(release)
		for _, c := range []net.Conn{first, second} {
			if code, _ := status(t, c); code != 200 {
				t.Errorf("got %d", code)
			}
		}
	})
}

// TestAbandonedCloneKeepsItsPlace: the upstream's child runs on, so the place
// is taken until the answer ends, and the caller still pays for it.
func TestAbandonedCloneKeepsItsPlace(t *testing.T) {
	var last error
	next := func(w http.ResponseWriter, r *http.Request) error {
		_, _ = w.Write(make([]byte, 100))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(20 * time.Second):
		case <-r.Context().Done():
		}
		_, last = w.Write(make([]byte, 100))
		return nil
	}
	inBubble(t, admission.Config{}, next, func(t *testing.T, b *bubble) {
		c := b.send(post(readRPC, 4, "0000"))
		_, _ = io.ReadFull(c, make([]byte, 100))
		_ = c.Close()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if k := b.state.Controller.Snapshot().Classes[admission.Anonymous]; k.Abandoned != 1 || k.InUse != 0 {
			t.Errorf("%d abandoned, %d in use, want 1 and 0", k.Abandoned, k.InUse)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if last != nil {
			t.Errorf("the drain failed: %v", last)
		}
		if b.outcome(admission.Anonymous, admission.OutcomeAbandoned) != 1 {
			t.Error("the outcome is not abandoned")
		}
	})
}

// An abandoned request is cut after drainTime, and when half of its class is
// abandoned the oldest goes, its permit five seconds later.
func TestAbandonedWorkIsBounded(t *testing.T) {
	four := 4
	cfg := admission.Config{Classes: map[string]*admission.ClassConfig{"anonymous": {Max: &four, CallerMax: &four}}}
	next := func(w http.ResponseWriter, r *http.Request) error {
		_, _ = w.Write(make([]byte, 100))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return r.Context().Err()
	}
	inBubble(t, cfg, next, func(t *testing.T, b *bubble) {
		for range 3 {
			c := b.send(post(readRPC, 4, "0000"))
			_, _ = io.ReadFull(c, make([]byte, 100))
			_ = c.Close()
			synctest.Wait()
		}
		check := func(want int) {
			t.Helper()
			synctest.Wait()
			if n := b.state.Controller.Snapshot().Classes[admission.Anonymous].Abandoned; n != want {
				t.Errorf("%d abandoned, want %d", n, want)
			}
		}
		check(3)
		if n := b.state.AbandonedCut(); n != 1 {
			t.Errorf("%d cut, want 1", n)
		}
		time.Sleep(cutHold + time.Second)
		check(2)
		time.Sleep(drainTime)
		check(0)
	})
}

// A slow client keeps its place until somebody needs it; then the slowest goes.
func TestSlowestGoesWhenSomebodyWaits(t *testing.T) {
	two := 2
	cfg := admission.Config{Classes: map[string]*admission.ClassConfig{
		"anonymous": {Max: &two, CallerMax: &two, Wait: &admission.WaitConfig{Size: 10, Max: admission.Duration(time.Minute)}},
	}}
	endless := func(w http.ResponseWriter, r *http.Request) error {
		if r.Header.Get("Quick") != "" {
			return nil
		}
		for {
			if _, err := w.Write(make([]byte, 1<<10)); err != nil {
				return err
			}
		}
	}
	inBubble(t, cfg, endless, func(t *testing.T, b *bubble) {
		drip := func(every time.Duration) net.Conn {
			c := b.send(post(readRPC, 4, "0000"))
			go func() {
				for buf := make([]byte, 1<<10); ; time.Sleep(every) {
					if _, err := io.ReadFull(c, buf); err != nil {
						return
					}
				}
			}()
			return c
		}
		slow, slower := drip(500*time.Millisecond), drip(5*time.Second)
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if n := b.state.Controller.Snapshot().Classes[admission.Anonymous].InUse; n != 2 {
			t.Fatalf("%d of 2 slow readers are left although nobody waits", n)
		}
		start := time.Now()
		raw := strings.Replace(post(readRPC, 4, "0000"), "\r\n\r\n", "\r\nQuick: 1\r\n\r\n", 1)
		if code, _ := status(t, b.send(raw)); code != http.StatusOK || time.Since(start) > time.Minute {
			t.Errorf("the waiter got %d after %v", code, time.Since(start))
		}
		if n := b.outcome(admission.Anonymous, admission.OutcomeDisplaced); n != 1 {
			t.Errorf("%d displaced, want the slowest one", n)
		}
		if _, err := slower.Write([]byte("x")); err == nil {
			t.Error("the slower reader is still connected")
		}
		if _, err := slow.Write([]byte("x")); err != nil {
			t.Errorf("the faster reader was ended: %v", err)
		}
		_, _ = slow.Close(), slower.Close()
		time.Sleep(10 * time.Second) // the readers notice
	})
}
