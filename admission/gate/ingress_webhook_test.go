package gate

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

func oneHook(t *testing.T) func() IngressConfig {
	return func() IngressConfig { return IngressConfig{Hooks: []HookConfig{githubHook(t, "/hooks/ci")}} }
}

// Exact bytes, all companions and nothing else reach the upstream.
func TestHookForwardsExactly(t *testing.T) {
	u := &hookReceiver{status: http.StatusAccepted}
	ingressBubble(t, admission.Config{}, oneHook(t), u.next, func(t *testing.T, s *ingressServer) {
		body := "{\"repository\": {\"full_name\":\"o/r\"},\n \"x\":\"\u00e9\"}"
		for i, d := range []delivery{
			{body: body, header: []string{"X-Custom: kept", "Expect: 100-continue"}},
			{body: body, chunked: true, header: []string{"X-Custom: kept"}},
		} {
			c := s.open(d.bytes())
			code, _ := status(t, c)
			if code == http.StatusContinue {
				code, _ = status(t, c)
			}
			_ = c.Close()
			if code != http.StatusAccepted || u.bodies[i] != body {
				t.Fatalf("%d, %q", code, u.bodies)
			}
			h := u.seen[i]
			if h.Get("X-Custom") != "kept" || h.Get("X-Hub-Signature-256") != sign(body) || h.Get("X-Github-Event") != "push" || h.Get("Expect") != "" {
				t.Errorf("headers %v", h)
			}
		}
		if outcome(s.state, HookDelivered) != 2 {
			t.Error("not counted as delivered")
		}
	})
}

// Four valid deliveries are claimed at once, the fifth gets 503; a permit is
// held until the upstream's answer.
func TestHookFourClaimedFifthRefused(t *testing.T) {
	u := &hookReceiver{}
	ingressBubble(t, admission.Config{}, oneHook(t), u.next, func(t *testing.T, s *ingressServer) {
		u.hold = make(chan struct{}) // of the bubble
		d := delivery{body: `{"n":1}`}
		var conns []net.Conn
		for range 4 {
			conns = append(conns, s.open(d.bytes()))
		}
		synctest.Wait()
		if u.count() != 4 {
			t.Fatalf("%d claimed, want 4", u.count())
		}
		c := s.open(d.bytes())
		resp, body := answerOf(t, c)
		if resp.StatusCode != http.StatusServiceUnavailable || body != "webhook ingestion overloaded" || resp.Header.Get("Retry-After") == "" {
			t.Fatalf("fifth: %d %q %v", resp.StatusCode, body, resp.Header)
		}
		_ = c.Close()
		close(u.hold)
		for _, c := range conns {
			if code, _ := status(t, c); code != http.StatusOK {
				t.Errorf("held delivery: %d", code)
			}
			_ = c.Close()
		}
		if code, _ := s.send(d.bytes()); code != http.StatusOK {
			t.Errorf("after the release: %d", code)
		}
		if u.peak != 4 || outcome(s.state, HookPermit) != 1 || s.state.Ingress.Snapshot().Limited["webhook"] != 1 {
			t.Errorf("peak %d, %v", u.peak, s.state.Ingress.Snapshot())
		}
	})
}

// A cancelled delivery frees its permit; a hanging upstream frees all at the
// deadline, which is answered 504 without an error for the log.
func TestHookPermitsAreFreed(t *testing.T) {
	u := &hookReceiver{}
	ingressBubble(t, admission.Config{}, oneHook(t), u.next, func(t *testing.T, s *ingressServer) {
		u.hold = make(chan struct{}) // of the bubble
		d := delivery{body: `{"n":1}`}
		gone := s.open(d.bytes())
		synctest.Wait()
		if n := inUse(s.state, admission.Webhook); n != 1 {
			t.Fatalf("%d in use", n)
		}
		_ = gone.Close()
		synctest.Wait()
		if n := inUse(s.state, admission.Webhook); n != 0 || outcome(s.state, HookGone) != 1 {
			t.Fatalf("%d in use after the sender left", n)
		}
		start := time.Now()
		var conns []net.Conn
		for range 4 {
			conns = append(conns, s.open(d.bytes()))
		}
		for _, c := range conns {
			if code, _ := status(t, c); code != http.StatusGatewayTimeout {
				t.Errorf("hanging upstream: %d, want 504", code)
			}
			_ = c.Close()
		}
		if took := time.Since(start); took != 8*time.Second {
			t.Errorf("deadline after %v, want 8 s", took)
		}
		if outcome(s.state, HookDeadline) != 4 {
			t.Error("not counted as deadline")
		}
	})
}

func TestHookDeadlineIsTheShortest(t *testing.T) {
	for name, want := range map[string]time.Duration{"class": 3 * time.Second, "profile": 4 * time.Second, "own": time.Second} {
		t.Run(name, func(t *testing.T) {
			h, cfg := githubHook(t, "/hooks/ci"), admission.Config{}
			p := *h.Profile
			switch name {
			case "class":
				d := admission.Duration(3 * time.Second)
				cfg.Classes = map[string]*admission.ClassConfig{"webhook": {Deadline: &d}}
			case "profile":
				p.Deadline = 4 * time.Second
				h.Profile = &p
			case "own":
				h.Deadline = time.Second
			}
			u := &hookReceiver{}
			in := func() IngressConfig { return IngressConfig{Hooks: []HookConfig{h}} }
			ingressBubble(t, cfg, in, u.next, func(t *testing.T, s *ingressServer) {
				u.hold = make(chan struct{}) // of the bubble
				start := time.Now()
				if code, _ := s.send(delivery{body: `{}`}.bytes()); code != http.StatusGatewayTimeout || time.Since(start) != want {
					t.Errorf("%d after %v, want 504 after %v", code, time.Since(start), want)
				}
			})
		})
	}
}

func TestHookPanicFreesThePermit(t *testing.T) {
	for _, p := range []any{"boom", http.ErrAbortHandler} {
		state, g := newIngressGate(t, admission.Config{}, IngressConfig{Hooks: []HookConfig{githubHook(t, "/hooks/ci")}})
		u := &hookReceiver{panics: p}
		func() {
			defer func() {
				if got := recover(); got != p {
					t.Errorf("recovered %v, want %v", got, p)
				}
			}()
			direct(g, parse(t, delivery{body: `{}`}), u.next)
		}()
		if n := inUse(state, admission.Webhook); n != 0 {
			t.Errorf("%d in use after a panic", n)
		}
		want := HookPanic
		if p == http.ErrAbortHandler {
			want = HookUpstreamFailed
		}
		if outcome(state, want) != 1 {
			t.Errorf("panic %v is not counted as %s", p, want)
		}
	}
}

// Errors of the handlers behind never leave the gate and never become 404,
// 410 or 429.
func TestHookUpstreamErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
		text string
	}{
		{errors.New("connection refused"), 503, overloaded},
		{statusError(502), 503, overloaded},
		{statusError(503), 503, overloaded},
		{statusError(504), 504, "webhook receiver too slow"},
		{statusError(404), 502, "webhook receiver failed"},
		{statusError(429), 502, "webhook receiver failed"},
	} {
		state, g := newIngressGate(t, admission.Config{}, IngressConfig{Hooks: []HookConfig{githubHook(t, "/hooks/ci")}})
		u := &hookReceiver{err: c.err}
		w, _ := direct(g, parse(t, delivery{body: `{}`}), u.next)
		if w.Code != c.want || w.Body.String() != c.text || outcome(state, HookUpstreamFailed) != 1 {
			t.Errorf("%v: %d %q, want %d", c.err, w.Code, w.Body, c.want)
		}
		if err := g.Serve(w, parse(t, delivery{body: `{}`}), u.next); err != nil {
			t.Errorf("Serve returned %v", err)
		}
	}
	state, g := newIngressGate(t, admission.Config{}, IngressConfig{Hooks: []HookConfig{githubHook(t, "/hooks/ci")}})
	u := &hookReceiver{status: 410}
	if w, _ := direct(g, parse(t, delivery{body: `{}`}), u.next); w.Code != 410 || outcome(state, HookUpstreamRefused) != 1 {
		t.Errorf("the upstream's own 410: %d", w.Code)
	}
}

// The first byte within a second, then 64 KiB/s, whatever was declared; the
// bytes that did not arrive are given back.
func TestHookSlowBodies(t *testing.T) {
	u := &hookReceiver{}
	cfg := admission.Config{Classes: map[string]*admission.ClassConfig{"webhook": {
		Bytes: &admission.BucketConfig{Burst: 32 << 20, PerSecond: 1}, // what comes back was given back
	}}}
	ingressBubble(t, cfg, oneHook(t), u.next, func(t *testing.T, s *ingressServer) {
		for name, c := range map[string]struct {
			trickle time.Duration
			within  time.Duration
		}{
			"nothing":                 {0, time.Second},
			"a byte a quarter second": {250 * time.Millisecond, 1100 * time.Millisecond},
		} {
			before, start := levels(s.state, time.Now()), time.Now()
			conn := s.open(delivery{body: "x", declared: 1 << 20}.head())
			go func() {
				for c.trickle > 0 {
					time.Sleep(c.trickle)
					if _, err := conn.Write([]byte("x")); err != nil {
						return
					}
				}
			}()
			synctest.Wait()
			if spent := before[1] - levels(s.state, time.Now())[1]; spent < 1<<20-1 {
				t.Errorf("%s: %v bytes charged, want the declared 1 MiB", name, spent)
			}
			code, _ := status(t, conn)
			if took := time.Since(start); code != http.StatusRequestTimeout || took > c.within {
				t.Errorf("%s: %d after %v", name, code, took)
			}
			_ = conn.Close()
			synctest.Wait()
			if left := levels(s.state, time.Now())[1]; left < before[1]-16 {
				t.Errorf("%s: %v bytes are missing from the bucket", name, before[1]-left)
			}
		}
		if outcome(s.state, HookSlow) != 2 || u.count() != 0 {
			t.Errorf("%v", s.state.Ingress.Snapshot().Webhooks)
		}
	})
}

// A steady sender at the minimum rate passes.
func TestHookSteadyBodyPasses(t *testing.T) {
	u := &hookReceiver{}
	ingressBubble(t, admission.Config{}, oneHook(t), u.next, func(t *testing.T, s *ingressServer) {
		d := delivery{body: strings.Repeat("x", 256<<10)}
		conn := s.open(d.head())
		synctest.Wait() // the head is written by a goroutine of its own
		go func() {
			for rest := d.body; rest != ""; {
				n := min(len(rest), 16<<10)
				_, _ = io.WriteString(conn, rest[:n])
				rest = rest[n:]
				time.Sleep(200 * time.Millisecond)
			}
		}()
		if code, _ := status(t, conn); code != http.StatusOK || u.bodies[0] != d.body {
			t.Errorf("%d", code)
		}
		_ = conn.Close()
	})
}

// An undeclared body is cut at the cap.
func TestHookUndeclaredBodyIsCut(t *testing.T) {
	h := githubHook(t, "/hooks/ci")
	h.MaxBody = 64 << 10
	in := func() IngressConfig { return IngressConfig{Hooks: []HookConfig{h}} }
	u := &hookReceiver{}
	ingressBubble(t, admission.Config{}, in, u.next, func(t *testing.T, s *ingressServer) {
		for size, want := range map[int]int{64 << 10: 200, 64<<10 + 1: 413} {
			d := delivery{body: strings.Repeat("y", size), chunked: true}
			if code, _ := s.send(d.bytes()); code != want {
				t.Errorf("%d bytes: %d, want %d", size, code, want)
			}
		}
		synctest.Wait()
		if outcome(s.state, HookBodyTooLarge) != 1 {
			t.Error("not counted")
		}
	})
}

// A refusal by one bucket spends nothing of the others.
func TestHookBucketsArePaired(t *testing.T) {
	cfg := admission.Config{Classes: map[string]*admission.ClassConfig{"webhook": {
		Bucket: &admission.BucketConfig{Burst: 3, PerSecond: 0.001},
		Bytes:  &admission.BucketConfig{Burst: 1000, PerSecond: 0.001},
	}}}
	h := githubHook(t, "/hooks/ci")
	h.Bucket = admission.BucketPolicy{Burst: 2, PerSecond: 0.001}
	in := func() IngressConfig { return IngressConfig{Hooks: []HookConfig{h, githubHook(t, "/hooks/other")}} }
	u := &hookReceiver{}
	ingressBubble(t, cfg, in, u.next, func(t *testing.T, s *ingressServer) {
		big, small := delivery{body: strings.Repeat("x", 600)}, delivery{body: "{}"}
		expect := func(d delivery, code int, o HookOutcome) {
			t.Helper()
			before, n := levels(s.state, time.Now()), outcome(s.state, o)
			own := s.ownLevel("/hooks/ci")
			if got, _ := s.send(d.bytes()); got != code || outcome(s.state, o) != n+1 {
				t.Fatalf("%d, want %d as %s; %v", got, code, o, s.state.Ingress.Snapshot().Webhooks)
			}
			synctest.Wait()
			if after := levels(s.state, time.Now()); code == 503 && (after[0] < before[0] || after[1] < before[1] || s.ownLevel("/hooks/ci") < own) {
				t.Fatalf("%s: buckets from %v to %v, own from %v to %v", o, before, after, own, s.ownLevel("/hooks/ci"))
			}
		}
		expect(big, 200, HookDelivered)
		expect(big, 503, HookBytes)
		expect(small, 200, HookDelivered)
		expect(small, 503, HookOwnBucket)
		small.path = "/hooks/other"
		expect(small, 200, HookDelivered)
		expect(small, 503, HookRequests)
	})
}

func (s *ingressServer) ownLevel(path string) float64 {
	s.state.Ingress.mu.Lock()
	defer s.state.Ingress.mu.Unlock()
	if b := s.state.Ingress.hooks["\x00"+path]; b != nil {
		return b.requests.Level(time.Now())
	}
	return 2
}
