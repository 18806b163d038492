package admission

import (
	"context"
	"math"
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
	// before newcomers (two, then one newcomer), finds an eighth of the queue's
	// size free when it is full of newcomers, and is charged no bucket. It obeys
	// every cap.
	Continuation bool
	// HasAnswer says the request is answered without a place when there is none,
	// so that it is not refused to the client: TryAdmit returns such a refusal
	// without counting it.
	HasAnswer bool
	// ComesBack says that the client obeys RetryAfter: where a bucket has no token
	// for it after those for everybody ahead, it is refused at once, and its place
	// in the queue goes to one that would not come back.
	ComesBack bool
	// Stopped is why a budget of the embedder's own refuses the request: it is
	// refused for that, or granted with Would in dry run. It does not wait.
	Stopped Reason
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

	mu      sync.Mutex // guards everything below; a leaf in every lock order
	now     int64      // latest time seen, ns since base; never decreases
	policy  *Policy
	closed  bool
	seq     int64 // of the last waiter
	waiters int   // all classes together

	classes [NumClasses]classState
	git     gitState
	callers callerTable
	permits permitSlab

	overflowed uint64 // decisions that found no room in the caller table

	parkings map[parkKey]*parking
	alarms   heap[*parking] // those that wait for a caller's bucket
	nextAt   int64          // when tick is due; math.MaxInt64 = never
	timer    *time.Timer    // nil until first needed
	retry    refusalCache
}

// NewController returns a controller that applies p.
func NewController(p *Policy) *Controller { return NewControllerWith(p, Options{}) }

// NewControllerWith is NewController with options.
func NewControllerWith(p *Policy, o Options) *Controller {
	c := &Controller{clock: o.Clock, spread: o.Spread, nextAt: math.MaxInt64}
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

// Policy returns the policy in force.
func (c *Controller) Policy() *Policy {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.policy
}

// advance moves the controller's time to t unless it is already past it.
func (c *Controller) advance(t int64) { c.now = max(c.now, t) }

// lock takes the mutex at time t, zero meaning now, and lets go whoever waited
// for a time that has come.
func (c *Controller) lock(t time.Time) {
	now := c.since(t)
	c.mu.Lock()
	c.advance(now)
	if c.now >= c.nextAt {
		c.tick()
	}
}

// Admit decides on r and waits where its class allows it, until ctx is done at
// the latest. Either the permit is valid or the refusal is not nil, except in
// dry run, where a valid permit may come with a Refusal that has Would set.
//
// When a grant and the end of ctx meet, the end of ctx wins: the permit is ended,
// its place and tokens are handed on, and the refusal is ReasonGone. When a grant
// and the wait limit meet, the grant wins. It allocates only when it waits.
func (c *Controller) Admit(ctx context.Context, r *Request) (Permit, *Refusal) {
	p, refusal, w, limit := c.begin(r, true)
	if w == nil {
		return p, refusal
	}
	return c.await(ctx, w, limit)
}

// TryAdmit decides on r at once: what could only wait is refused. It allocates
// nothing.
func (c *Controller) TryAdmit(r *Request) (Permit, *Refusal) {
	p, refusal, _, _ := c.begin(r, false)
	return p, refusal
}

// begin decides on r, or makes it wait and returns the waiter.
func (c *Controller) begin(r *Request, wait bool) (Permit, *Refusal, *waiter, time.Duration) {
	c.lock(r.Now)
	defer c.mu.Unlock()
	q := newClaim(r)
	v := c.decide(&q)
	if q.over != 0 {
		c.overflowed++
	}
	if v.reason == ReasonNone && r.Stopped != ReasonNone {
		v, wait = verdict{reason: r.Stopped}, false
	}
	if v.reason == ReasonNone {
		c.count(q.class, DecisionAdmitted)
		permit := c.take(&q)
		c.passedBy(&c.classes[q.class])
		return permit, nil, nil, 0
	}
	p := &c.classes[q.class].policy
	var victim *waiter
	if wait {
		var stop verdict
		if stop, victim = c.mayWait(&q, v); stop.reason != ReasonNone {
			v, wait = stop, false
		}
	}
	if p.DryRun && v.reason != ReasonShutdown {
		permit, refusal := c.dryRun(&q, v, wait)
		return permit, refusal, nil, 0
	}
	if !wait && r.HasAnswer {
		return Permit{}, c.retry.get(q.class, v.reason, !v.reason.callerScope(), false, 1), nil, 0
	}
	if !wait {
		return Permit{}, c.refuse(&q, v, v.reason, !v.reason.callerScope()), nil, 0
	}
	return Permit{}, nil, c.enqueue(&q, victim), p.WaitMax
}

// dryRun grants what v would stop, outside every limit, so that those who fit
// are decided exactly as they would be otherwise.
func (c *Controller) dryRun(q *claim, v verdict, wait bool) (Permit, *Refusal) {
	p, rec := c.permits.add(c)
	rec.class, rec.start, rec.beyond = q.class, c.now, true
	rec.group, rec.keys, rec.unproven = q.group, q.keys, !q.proven
	c.classes[q.class].beyond++
	if wait {
		c.count(q.class, DecisionWouldWait)
		return p, nil
	}
	c.count(q.class, DecisionWouldRefuse)
	return p, c.retry.get(q.class, v.reason, !v.reason.callerScope(), true, c.retryAfter(q, v))
}

// refuse counts and returns a refusal for reason; cause says what must free up.
func (c *Controller) refuse(q *claim, cause verdict, reason Reason, shared bool) *Refusal {
	c.count(q.class, DecisionRefused(reason))
	return c.retry.get(q.class, reason, shared, false, c.retryAfter(q, cause))
}

// Apply puts p in force. Permits, waiters, bucket levels, remembered callers and
// counters carry over exactly; what now fits is admitted before Apply returns. A
// controller that was shut down admits again. It costs time in proportion to
// permits and waiters, and to remembered callers when a caller bucket changes.
func (c *Controller) Apply(p *Policy) {
	c.lock(zeroTime)
	defer c.mu.Unlock()
	c.applyLocked(p)
}

// Shutdown refuses every waiter and all later requests with ReasonShutdown,
// except in classes without bound. Permits go on until their End.
func (c *Controller) Shutdown() {
	c.lock(zeroTime)
	defer c.mu.Unlock()
	c.closed = true
	for i := range c.classes {
		for _, w := range c.classes[i].queue.all() {
			c.leave(w)
			c.answer(w, verdict{reason: ReasonShutdown}, true)
		}
	}
	c.arm()
}

// CountRefusal counts a refusal that was decided outside the engine.
func (c *Controller) CountRefusal(class Class, reason Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count(min(class, Other), DecisionRefused(min(reason, NumReasons-1)))
}

func (c *Controller) count(class Class, d Decision) { c.classes[class].decisions[d]++ }
