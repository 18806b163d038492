package gate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

const knownAddr = "203.0.113.7"

// meet makes knownAddr a known sender by one genuine delivery.
func meet(t *testing.T, s *ingressServer) {
	t.Helper()
	if code, _ := s.send(delivery{addr: knownAddr, body: `{"first":1}`}.bytes()); code != http.StatusOK {
		t.Fatalf("first genuine delivery: %d", code)
	}
}

// strangers do their worst for 30 s while a known sender delivers four times a
// second; it returns how many of its deliveries were not accepted.
func underAttack(t *testing.T, s *ingressServer, attack func(stop <-chan struct{})) (refused, sent int) {
	t.Helper()
	stop := make(chan struct{})
	attack(stop)
	time.Sleep(time.Second)
	for i := range 120 {
		d := delivery{addr: knownAddr, body: fmt.Sprintf(`{"n":%d,"x":"%s"}`, i, strings.Repeat("x", 8<<10))}
		if code, _ := s.send(d.bytes()); code != http.StatusOK {
			refused++
		}
		sent++
		time.Sleep(250 * time.Millisecond)
	}
	close(stop)
	return refused, sent
}

// every calls f in its own goroutine each period until stop.
func every(period time.Duration, stop <-chan struct{}, f func(i int)) {
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(period):
				go f(i)
			}
		}
	}()
}

// fire sends raw and waits for the answer.
func (s *ingressServer) fire(raw string) {
	c := s.open(raw)
	defer c.Close()
	_, _ = c.Read(make([]byte, 1))
}

// trickle sends a head and then a byte now and again.
func (s *ingressServer) trickle(d delivery, period time.Duration) {
	c, piece := s.open(d.head()), "x"
	if d.chunked {
		piece = "1\r\nx\r\n"
	}
	defer c.Close()
	done := make(chan struct{})
	go func() { _, _ = c.Read(make([]byte, 1)); close(done) }()
	for {
		select {
		case <-done:
			return
		case <-time.After(period):
			_ = c.SetWriteDeadline(time.Now().Add(time.Second))
			if _, err := c.Write([]byte(piece)); err != nil {
				return
			}
		}
	}
}

func TestStrangersCannotCloseTheLane(t *testing.T) {
	attacks := map[string]func(s *ingressServer, stop <-chan struct{}){
		"declaring 25 MiB every second": func(s *ingressServer, stop <-chan struct{}) {
			every(time.Second, stop, func(int) {
				s.trickle(delivery{addr: "198.51.100.1", forged: true, declared: 25 << 20}, 100*time.Millisecond)
			})
		},
		"100 small forged a second": func(s *ingressServer, stop <-chan struct{}) {
			every(10*time.Millisecond, stop, func(int) {
				s.fire(delivery{addr: "198.51.100.2", forged: true, body: "{}"}.bytes())
			})
		},
		"eight trickling": func(s *ingressServer, stop <-chan struct{}) {
			for i := range 8 {
				every(1100*time.Millisecond, stop, func(int) {
					s.trickle(delivery{addr: fmt.Sprintf("198.51.%d.1", 100+i), forged: true, declared: 100 << 10}, 100*time.Millisecond)
				})
			}
		},
		"25 MiB undeclared from forty networks": func(s *ingressServer, stop <-chan struct{}) {
			every(100*time.Millisecond, stop, func(i int) {
				s.trickle(delivery{addr: fmt.Sprintf("198.51.%d.1", i%40), forged: true, chunked: true}, 100*time.Millisecond)
			})
		},
	}
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			u := &hookReceiver{}
			ingressBubble(t, admission.Config{}, oneHook(t), u.next, func(t *testing.T, s *ingressServer) {
				meet(t, s)
				refused, sent := underAttack(t, s, func(stop <-chan struct{}) { attack(s, stop) })
				if refused != 0 {
					t.Errorf("%d of %d deliveries of a known sender refused: %v", refused, sent, s.state.Ingress.Snapshot().Webhooks)
				}
				if u.count() != sent+1 {
					t.Errorf("the upstream saw %d, want %d", u.count(), sent+1)
				}
			})
		})
	}
}

// Without a known sender the same strangers do close the lane: the rule, and
// not something else, is what keeps it open.
func TestStrangersWithoutKnownSenders(t *testing.T) {
	u := &hookReceiver{}
	ingressBubble(t, admission.Config{}, oneHook(t), u.next, func(t *testing.T, s *ingressServer) {
		for i := range 4 {
			go s.trickle(delivery{addr: fmt.Sprintf("198.51.%d.1", i), forged: true, declared: 1 << 20}, 100*time.Millisecond)
		}
		time.Sleep(500 * time.Millisecond)
		if code, body := s.send(delivery{addr: knownAddr, body: "{}"}.bytes()); code != http.StatusServiceUnavailable || body != overloaded {
			t.Errorf("nobody is known: %d %q, want 503", code, body)
		}
	})
}

// A sender that the configuration lists is known before its first delivery.
func TestListedSenderDisplaces(t *testing.T) {
	for name, list := range map[string]func(*IngressConfig){
		"for all":  func(c *IngressConfig) { c.Senders = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")} },
		"for hook": func(c *IngressConfig) { c.Hooks[0].Senders = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")} },
	} {
		t.Run(name, func(t *testing.T) {
			in := func() IngressConfig { c := oneHook(t)(); list(&c); return c }
			u := &hookReceiver{}
			ingressBubble(t, admission.Config{}, in, u.next, func(t *testing.T, s *ingressServer) {
				answers := make(chan int, 4)
				for i := range 4 {
					go func() {
						code, _ := s.send(delivery{addr: fmt.Sprintf("198.51.%d.1", i), forged: true, declared: 1 << 20}.head())
						answers <- code
					}()
				}
				time.Sleep(100 * time.Millisecond)
				if code, _ := s.send(delivery{addr: knownAddr, body: "{}"}.bytes()); code != http.StatusOK {
					t.Fatalf("listed sender: %d", code)
				}
				codes := map[int]int{}
				for range 4 {
					codes[<-answers]++
				}
				if codes[503] != 1 || codes[408] != 3 || outcome(s.state, HookDisplaced) != 1 {
					t.Errorf("strangers got %v, want one 503 and three 408", codes)
				}
				if d := s.state.Controller.Snapshot().Outcomes[admission.Webhook][admission.OutcomeDisplaced]; d != 1 {
					t.Errorf("%d permits ended as displaced", d)
				}
			})
		})
	}
}

// A known holder, and an unknown one whose body is complete, keep their permit.
func TestOnlyIncompleteStrangersAreDisplaced(t *testing.T) {
	u := &hookReceiver{}
	ingressBubble(t, admission.Config{}, oneHook(t), u.next, func(t *testing.T, s *ingressServer) {
		meet(t, s)
		u.hold = make(chan struct{})
		var conns []net.Conn
		for i := range 4 {
			conns = append(conns, s.open(delivery{addr: fmt.Sprintf("198.51.%d.1", i), body: "{}"}.bytes()))
		}
		synctest.Wait()
		if code, _ := s.send(delivery{addr: knownAddr, body: "{}"}.bytes()); code != http.StatusServiceUnavailable {
			t.Errorf("known sender with all permits in commit: %d, want 503", code)
		}
		close(u.hold)
		for _, c := range conns {
			if code, _ := status(t, c); code != http.StatusOK {
				t.Errorf("a delivery in commit was cut: %d", code)
			}
			_ = c.Close()
		}
	})
}

// One unknown group gets a quarter of the requests while somebody is known.
func TestStrangerShare(t *testing.T) {
	cfg := admission.Config{Classes: map[string]*admission.ClassConfig{"webhook": {Bucket: &admission.BucketConfig{Burst: 40, PerSecond: 0.01}}}}
	u := &hookReceiver{}
	ingressBubble(t, cfg, oneHook(t), u.next, func(t *testing.T, s *ingressServer) {
		meet(t, s)
		pass := func(addr string, n int) (passed int) {
			for range n {
				if code, _ := s.send(delivery{addr: addr, forged: true, body: "{}"}.bytes()); code == http.StatusUnauthorized {
					passed++
				}
			}
			return passed
		}
		if n := pass("198.51.100.1", 20); n != 10 {
			t.Errorf("one unknown group passed %d of burst 40, want 10", n)
		}
		if n := pass("198.51.100.9", 5); n != 0 {
			t.Errorf("another address of that group passed %d", n)
		}
		n := pass("198.51.101.1", 20) + pass("198.51.102.1", 20) + pass("198.51.103.1", 20)
		if n != 19 { // 40 less one genuine less ten leaves 29; the last ten are kept
			t.Errorf("three more groups passed %d, want 19", n)
		}
		for i := range 10 {
			if code, _ := s.send(delivery{addr: knownAddr, body: "{}"}.bytes()); code != http.StatusOK {
				t.Fatalf("known sender's delivery %d: %d", i, code)
			}
		}
	})
}

func TestKnownSetForgets(t *testing.T) {
	k, now := newKnownSet(), time.Now()
	for i := range knownMax {
		k.add(admission.Key(i+1), now.Add(time.Duration(i)*time.Second))
	}
	k.add(admission.Key(99999), now.Add(time.Hour))
	if len(k.last) != knownMax || k.has(1, now.Add(time.Hour)) || !k.has(2, now.Add(time.Hour)) {
		t.Errorf("%d remembered; the oldest must go first", len(k.last))
	}
	if late := now.Add(25*time.Hour + time.Second); k.has(99999, late) || k.any(late) {
		t.Error("known for longer than a day")
	}
	if !k.any(now.Add(24 * time.Hour)) {
		t.Error("forgotten too early")
	}
}

func TestSharesAreBounded(t *testing.T) {
	s, now := shares{of: map[admission.Key]*budget{}}, time.Now()
	p := admission.BucketPolicy{Burst: 1, PerSecond: 1}
	for i := range strangerMax {
		s.get(admission.Key(i+1), p, p, now).take(now, 1)
	}
	a, b := s.get(admission.Key(1<<40), p, p, now), s.get(admission.Key(1<<41), p, p, now)
	if len(s.of) != strangerMax || a != b {
		t.Errorf("%d shares; newcomers beyond the bound must have one together", len(s.of))
	}
	if c := s.get(admission.Key(1<<42), p, p, now.Add(2*time.Second)); c == a || len(s.of) != 1 {
		t.Errorf("%d shares after all were full again", len(s.of))
	}
}

// committer is a fake spool.
type committer struct {
	answer CommitAnswer
	err    error
	got    []*VerifiedDelivery
	block  bool
}

func (c *committer) Commit(ctx context.Context, d *VerifiedDelivery) (CommitAnswer, error) {
	c.got = append(c.got, d)
	if c.block {
		<-ctx.Done()
		return CommitAnswer{}, ctx.Err()
	}
	return c.answer, c.err
}

func TestHookCommits(t *testing.T) {
	for _, c := range []struct {
		name   string
		with   committer
		code   int
		text   string
		counts HookOutcome
	}{
		{"kept", committer{answer: CommitAnswer{Status: 202, Kept: true}}, 202, "", HookKept},
		{"delivered", committer{answer: CommitAnswer{Status: 204}}, 204, "", HookDelivered},
		{"refused", committer{answer: CommitAnswer{Status: 400, Body: []byte("no")}}, 400, "no", HookUpstreamRefused},
		{"full", committer{err: errors.New("secret path /var/lib")}, 503, overloaded, HookKeepFailed},
		{"hanging", committer{block: true}, 504, "webhook receiver too slow", HookDeadline},
	} {
		t.Run(c.name, func(t *testing.T) {
			with := c.with
			in := func() IngressConfig { cfg := oneHook(t)(); cfg.Hooks[0].Commit = &with; return cfg }
			u := &hookReceiver{}
			ingressBubble(t, admission.Config{}, in, u.next, func(t *testing.T, s *ingressServer) {
				if code, _ := s.send(delivery{body: "{}", forged: true}.bytes()); code != 401 || len(with.got) != 0 {
					t.Fatalf("forged: %d, committed %d", code, len(with.got))
				}
				body := `{"repository":{"full_name":"o/r"}}`
				code, text := s.send(delivery{path: "/hooks/ci?token=t", body: body}.bytes())
				if code != c.code || text != c.text || outcome(s.state, c.counts) != 1 || u.count() != 0 {
					t.Fatalf("%d %q, %v", code, text, s.state.Ingress.Snapshot().Webhooks)
				}
				d := with.got[0]
				if string(d.Body) != body || d.Repository != "o/r" || d.Event != "push" || d.Query != "token=t" || d.Hook != "/hooks/ci" || !d.Verified {
					t.Errorf("%+v", d)
				}
			})
		})
	}
}

// A profile that the gateway cannot verify is never kept.
func TestUnverifiableIsNotKept(t *testing.T) {
	h := githubHook(t, "/hooks/ci")
	h.Profile = woodpecker(t)
	h.Secrets = noSecrets
	h.Commit = &committer{}
	if _, err := newIngress(&IngressConfig{Hooks: []HookConfig{h}}, nil); err == nil || !strings.Contains(err.Error(), "verified") {
		t.Errorf("accepted: %v", err)
	}
}
