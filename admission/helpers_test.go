package admission

import (
	"errors"
	"testing"
	"time"
)

// handClock is a clock that only the test moves.
type handClock struct{ t time.Time }

func newHandClock() *handClock { return &handClock{t: time.Unix(1_700_000_000, 0)} }

func (h *handClock) now() time.Time          { return h.t }
func (h *handClock) advance(d time.Duration) { h.t = h.t.Add(d) }

func ptr[T any](v T) *T { return &v }

// compile returns the policy of a configuration that must load.
func compile(t testing.TB, cfg Config) *Policy {
	t.Helper()
	p, problems := cfg.Compile()
	if p == nil {
		var errs []error
		for _, pr := range problems {
			errs = append(errs, pr)
		}
		t.Fatal(errors.Join(errs...))
	}
	return p
}

// standing returns a controller whose clock only the test moves and which
// spreads nothing.
func standing(t testing.TB, cfg Config) (*Controller, *handClock) {
	t.Helper()
	clock := newHandClock()
	c := NewControllerWith(compile(t, cfg), Options{Clock: clock.now, Spread: func() float64 { return 0 }})
	return c, clock
}

// from is a request of class c from one address in one group.
func from(c Class, address Key) *Request {
	r := &Request{Class: c, Group: address >> 8}
	r.Keys[ByAddress] = address
	return r
}

// mustAdmit fails the test when r is refused.
func mustAdmit(t testing.TB, c *Controller, r *Request) Permit {
	t.Helper()
	p, refusal := c.TryAdmit(r)
	if refusal != nil {
		t.Fatalf("%s was refused: %s", r.Class, refusal.Reason)
	}
	return p
}

// mustRefuse fails the test when r is not refused for reason.
func mustRefuse(t testing.TB, c *Controller, r *Request, reason Reason) *Refusal {
	t.Helper()
	p, refusal := c.TryAdmit(r)
	if refusal == nil {
		p.End(OutcomeCompleted)
		t.Fatalf("%s was admitted; want a refusal for %s", r.Class, reason)
	}
	if refusal.Reason != reason {
		t.Fatalf("%s was refused for %s; want %s", r.Class, refusal.Reason, reason)
	}
	return refusal
}

// failer is what testing.TB and rapid.T have in common.
type failer interface {
	Helper()
	Errorf(string, ...any)
	Fatalf(string, ...any)
}

// mustBeIdle fails the test unless everything is back at zero.
func mustBeIdle(t failer, c *Controller) {
	t.Helper()
	s := c.Snapshot()
	if s.InUse != 0 || s.SharedUsed != 0 || s.Permits != 0 {
		t.Fatalf("git in use %d, shared %d, permits %d; want 0", s.InUse, s.SharedUsed, s.Permits)
	}
	for _, cl := range s.Classes {
		if cl.InUse != 0 || cl.Abandoned != 0 || cl.Waiting != 0 || cl.Beyond != 0 {
			t.Fatalf("%s: %+v; want nothing in use", cl.Class, cl)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.parkings) != 0 || len(c.alarms) != 0 {
		t.Fatalf("%d parkings and %d alarms left", len(c.parkings), len(c.alarms))
	}
	for i := range c.classes {
		cl := &c.classes[i]
		if cl.unproven != 0 || cl.queue.ready.n() != 0 || len(cl.queue.groups) != 0 {
			t.Fatalf("%s: queue or unproven count not empty", cl.class)
		}
		for s := range cl.overflow {
			if cl.overflow[s].count != 0 {
				t.Fatalf("%s: overflow count %d", cl.class, cl.overflow[s].count)
			}
		}
	}
	c.callers.each(func(e *callerEntry) {
		if e.count != 0 {
			t.Errorf("a caller of %s still holds %d", e.class, e.count)
		}
	})
}

// mustWait makes r wait without blocking the test.
func mustWait(t testing.TB, c *Controller, r *Request) *waiter {
	t.Helper()
	_, refusal, w, _ := c.begin(r, true)
	if w == nil {
		t.Fatalf("%s does not wait: %+v", r.Class, refusal)
	}
	return w
}
