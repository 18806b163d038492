package admission

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Request is what the engine needs to know of a request. It is read during the
// call only and never kept.
type Request struct {
	Class Class
	// Now is the time of arrival, from the same clock as the controller's; zero
	// means now. A time before the latest one seen counts as that one.
	Now time.Time
	// Group is the unit of fairness between waiters; 0 is a group of its own.
	Group Key
	// Keys identify the caller by scope; 0 means the scope does not apply: no
	// cap, no bucket.
	Keys [NumScopes]Key
	// Proven says the caller or its group holds a proof. It matters only where
	// the class bounds what is not proven.
	Proven bool
	// Bytes is charged to the class's byte bucket, capped at its burst.
	Bytes int64
	// Continuation marks the next step of something already admitted: it waits
	// before newcomers (two, then one newcomer) and is charged no bucket. It
	// obeys every cap.
	Continuation bool
}

// Options are for tests and embedding; the zero value is right for production.
type Options struct {
	// Clock is the source of time. Timers run on real time even so; with a
	// clock that stands still only Apply, End and new requests move the queue.
	// Default: time.Now.
	Clock func() time.Time
	// Spread returns a number in [0, 1) for each refusal, to spread RetryAfter.
	// It is called with the lock held and must not block. Default: random.
	Spread func() float64
}

// Controller decides. Make it with NewController; it starts no goroutine. Safe
// for concurrent use.
type Controller struct {
	clock  func() time.Time // nil = the monotonic clock
	spread func() float64
	base   time.Time

	mu     sync.Mutex // guards everything below; a leaf in every lock order
	now    int64      // latest time seen, ns since base; never decreases
	policy *Policy
	closed bool

	classes [NumClasses]classState
	git     gitState
	callers callerTable
	permits permitSlab
	retry   refusalCache
}

// NewController returns a controller that applies p.
func NewController(p *Policy) *Controller { return NewControllerWith(p, Options{}) }

// NewControllerWith is NewController with options.
func NewControllerWith(p *Policy, o Options) *Controller {
	c := &Controller{clock: o.Clock, spread: o.Spread}
	if c.spread == nil {
		c.spread = rand.Float64
	}
	c.base = time.Now()
	if c.clock != nil {
		c.base = c.clock()
	}
	c.callers.init(p.CallersMax)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.classes {
		c.classes[i].init(Class(i), c.base)
	}
	c.applyLocked(p)
	return c
}

var zeroTime time.Time

// since returns the controller time of t, or of now for the zero time.
func (c *Controller) since(t time.Time) int64 {
	switch {
	case !t.IsZero():
		return int64(t.Sub(c.base))
	case c.clock != nil:
		return int64(c.clock().Sub(c.base))
	}
	return int64(time.Since(c.base))
}

// advance moves the controller's time to t unless it is already past it.
func (c *Controller) advance(t int64) {
	if t > c.now {
		c.now = t
	}
}

// Policy returns the policy in force.
func (c *Controller) Policy() *Policy {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.policy
}

// Admit decides on r and waits where its class allows it, until ctx is done at
// the latest. Exactly one of the results says admitted or refused, except in dry
// run, where a valid permit comes with a Refusal that has Would set.
//
// When a grant and the end of ctx meet, the end of ctx wins: the permit is ended
// and its place handed on, and the refusal is ReasonGone. When a grant and the
// wait limit meet, the grant wins. It allocates only when it waits.
func (c *Controller) Admit(ctx context.Context, r *Request) (Permit, *Refusal) {
	return c.TryAdmit(r)
}

// TryAdmit decides on r at once: what could only wait is refused. It allocates
// nothing.
func (c *Controller) TryAdmit(r *Request) (Permit, *Refusal) {
	t := c.since(r.Now)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(t)
	q := newClaim(r)
	v := c.check(&q)
	if v.reason == ReasonNone {
		c.count(q.class, DecisionAdmitted)
		return c.take(&q), nil
	}
	return c.refuse(&q, v)
}

// Apply puts p in force. Permits, waiters, bucket levels, remembered callers and
// counters carry over exactly; what now fits is admitted before Apply returns. A
// controller that was shut down admits again. It costs time in proportion to
// permits and waiters, and to remembered callers when a caller bucket changes.
func (c *Controller) Apply(p *Policy) {
	t := c.since(zeroTime)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(t)
	c.applyLocked(p)
}

// Shutdown refuses every waiter and all later requests with ReasonShutdown,
// except in classes without bound. Permits go on until their End.
func (c *Controller) Shutdown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// CountRefusal counts a refusal that was decided outside the engine.
func (c *Controller) CountRefusal(class Class, reason Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count(class, DecisionRefused(reason))
}

func (c *Controller) count(class Class, d Decision) { c.classes[class].decisions[d]++ }

// refuse answers a claim that does not fit: with a refusal, or in dry run with
// a permit outside every limit beside it.
func (c *Controller) refuse(q *claim, v verdict) (Permit, *Refusal) {
	cl := &c.classes[q.class]
	shared := !v.reason.callerScope()
	seconds := c.spreadSeconds(c.estimate(q, cl, v))
	if cl.policy.DryRun && v.reason != ReasonShutdown {
		c.count(q.class, DecisionWouldRefuse)
		return c.takeBeyond(q), c.retry.get(q.class, v.reason, shared, true, seconds)
	}
	c.count(q.class, DecisionRefused(v.reason))
	return Permit{}, c.retry.get(q.class, v.reason, shared, false, seconds)
}

// takeBeyond grants a permit that counts against nothing.
func (c *Controller) takeBeyond(q *claim) Permit {
	p, rec := c.permits.add(c)
	rec.class, rec.start, rec.beyond = q.class, c.now, true
	rec.group, rec.keys, rec.unproven = q.group, q.keys, !q.proven
	c.classes[q.class].beyond++
	return p
}
