package admission

import (
	"context"
	"time"
)

// decide is check for a new request: it also may not overtake who waits.
func (c *Controller) decide(q *claim) verdict {
	v := c.check(q)
	qu := &c.classes[q.class].queue
	if v.reason != ReasonNone || qu.n == 0 {
		return v
	}
	if qu.ready.continuations.n > 0 || (!q.cont && qu.ready.newcomers.n > 0) {
		return verdict{reason: qu.blocked}
	}
	return v
}

// passedBy looks again at newcomers that are short of the class's tokens and
// were passed by a continuation: it may have left them behind their own cap, and
// then they hold nobody up.
func (c *Controller) passedBy(cl *classState) {
	if cl.queue.ready.n() > 0 {
		c.pump(cl)
		c.arm()
	}
}

// mayWait returns ReasonNone when q, stopped by v, may join its class's queue,
// else the refusal. victim is who has to leave for it, if anybody.
func (c *Controller) mayWait(q *claim, v verdict) (refusal verdict, victim *waiter) {
	cl := &c.classes[q.class]
	if cl.policy.WaitSize == 0 || cl.policy.Max == 0 || v.reason == ReasonShutdown {
		return v, nil
	}
	if d := c.tooLate(q, cl); d.reason != ReasonNone {
		return d, nil
	}
	if s, full := c.shareTaken(q, cl); full {
		if r := s.full(); r != ReasonCallerCap {
			return verdict{reason: r, scope: s}, nil
		}
		return verdict{reason: ReasonCallerQueueFull, scope: s}, nil
	}
	if cl.queue.n < queueRoom(cl.policy.WaitSize, q.cont) {
		return verdict{}, nil
	}
	if victim = cl.queue.victim(q.group); victim == nil {
		return verdict{reason: ReasonQueueFull}, nil
	}
	return verdict{}, victim
}

// queueRoom is how many may wait before somebody has to leave. Continuations find
// an eighth more: a crowd of networks that wait once each could otherwise shut
// out what goes before it.
func queueRoom(size int, cont bool) int {
	if cont {
		return size + size/8
	}
	return size
}

// tooLate reports a bucket whose token, after those for everybody ahead, comes
// only after the wait limit, or is not there yet where q does not wait for it.
func (c *Controller) tooLate(q *claim, cl *classState) verdict {
	limit := int64(cl.policy.WaitMax)
	switch {
	case q.cont:
		return verdict{}
	case q.back:
		limit = 0
	}
	if d := cl.bucket.shortage(c.now, int64(cl.queue.newcomers)+1); d > limit {
		return verdict{reason: ReasonClassBucket, delay: d}
	}
	if n := cl.bytes.charge(q.bytes); n > 0 {
		if d := cl.bytes.shortage(c.now, cl.queue.bytes+n); d > limit {
			return verdict{reason: ReasonByteBucket, delay: d}
		}
	}
	if d := c.callerDelay(q, cl); d > limit {
		over := q.over&(1<<ByAddress) != 0
		return verdict{reason: pick(over, ReasonOverflow, ReasonCallerBucket), over: over, delay: d}
	}
	return verdict{}
}

// callerDelay is when the caller's bucket has a token for q after those for the
// caller's own waiters.
func (c *Controller) callerDelay(q *claim, cl *classState) int64 {
	if !cl.caller.on || q.cont || q.keys[ByAddress] == 0 {
		return 0
	}
	ahead, full := 0, int64(0)
	if pk := c.parkings[c.ownKey(q, ByAddress)]; pk != nil {
		ahead = pk.fresh
	}
	if e := q.entry(cl, ByAddress); e != nil {
		full = e.full
	}
	return cl.caller.shortage(c.now, full, int64(ahead)+1)
}

func (c *Controller) ownKey(q *claim, s Scope) parkKey {
	return parkKey{id: c.callers.id(q.class, s, q.keys[s])}
}

// shareTaken reports whether a caller that waits behind itself already has its
// half of the queue. A provider that signs everybody out sends all its logouts
// from one address, so logouts have no such share; a full queue drops the newest
// of the largest group all the same.
func (c *Controller) shareTaken(q *claim, cl *classState) (Scope, bool) {
	if q.class == Logout {
		return 0, false
	}
	half := (cl.policy.WaitSize + 1) / 2
	for s := range NumScopes {
		if cl.tracked&(1<<s) == 0 || q.keys[s] == 0 {
			continue
		}
		pk := c.parkings[c.ownKey(q, s)]
		if pk == nil || pk.queued < half {
			continue
		}
		count := 0
		if e := q.entry(cl, s); e != nil {
			count = int(e.count)
		}
		limit := cl.policy.CallerMax[s]
		if limit > 0 && count+pk.queued >= limit || s == ByAddress && c.callerDelay(q, cl) > 0 {
			return s, true
		}
	}
	return 0, false
}

// enqueue makes q wait.
func (c *Controller) enqueue(q *claim, victim *waiter) *waiter {
	cl := &c.classes[q.class]
	if victim != nil {
		c.leave(victim)
		c.answer(victim, verdict{reason: ReasonDisplaced}, true)
	}
	c.seq++
	w := &waiter{claim: *q, seq: c.seq, done: make(chan struct{}, 1)}
	c.register(w, cl)
	cl.queue.ready.add(w)
	c.pump(cl)
	c.arm()
	return w
}

// register enters w where its class and its keys count who waits.
func (c *Controller) register(w *waiter, cl *classState) {
	w.cost = cl.bytes.charge(w.bytes)
	cl.queue.add(w)
	c.waiters++
	c.registerKeys(w, cl)
}

func (c *Controller) registerKeys(w *waiter, cl *classState) {
	for s := range NumScopes {
		if cl.tracked&(1<<s) == 0 || w.keys[s] == 0 {
			continue
		}
		pk := c.parkingOf(c.ownKey(&w.claim, s), w.class, s)
		pk.queued++
		if !w.cont {
			pk.fresh++
		}
		w.under[s] = pk
	}
}

// deregister is the reverse of register.
func (c *Controller) deregister(w *waiter, cl *classState) {
	cl.queue.drop(w)
	c.waiters--
	for s, pk := range w.under {
		if pk == nil {
			continue
		}
		w.under[s] = nil
		pk.queued--
		if !w.cont {
			pk.fresh--
		}
		c.discard(pk)
	}
}

// leave takes a waiter out wherever it is. The class must be pumped afterwards.
func (c *Controller) leave(w *waiter) {
	c.passOn(w) // before it goes, so that its caller keeps its turn
	w.in.remove(w)
	if pk := w.parked; pk != nil {
		w.parked = nil
		c.wake(pk)
	}
	c.deregister(w, &c.classes[w.class])
}

// grant admits a ready waiter, whose claim check has just found to fit.
func (c *Controller) grant(w *waiter) {
	cl := &c.classes[w.class]
	w.permit = c.take(&w.claim)
	cl.queue.ready.served(w)
	c.deregister(w, cl)
	c.passOn(w)
	w.state = granted
	w.done <- struct{}{}
}

// answer refuses a waiter that has left the queue.
func (c *Controller) answer(w *waiter, v verdict, shared bool) {
	w.refusal = c.refuse(&w.claim, v, v.reason, shared)
	w.state = refused
	w.done <- struct{}{}
}

// pump admits ready waiters of the class until nobody is left who could go.
func (c *Controller) pump(cl *classState) {
	q := &cl.queue
	q.wakeAt = 0
	onlyContinuations := false
	for q.ready.n() > 0 && !c.closed {
		if q.blocked = c.full(cl); q.blocked != ReasonNone {
			return
		}
		w := q.ready.next(onlyContinuations)
		if w == nil {
			q.blocked = q.short
			return
		}
		v := c.check(&w.claim)
		if v.reason == ReasonNone && !w.cont {
			v = c.promised(w, cl)
		}
		switch v.reason {
		case ReasonNone:
			c.grant(w)
			onlyContinuations = false // it may have used up what the one short of tokens needs
		case ReasonClassBucket, ReasonByteBucket:
			q.short, q.wakeAt = v.reason, c.now+v.delay
			onlyContinuations = true
		default:
			c.park(w, v)
		}
	}
}

// pumpFrom admits who can use what a permit of cl gave back. Among the git
// classes what is shared goes to the class with the most proof first.
func (c *Controller) pumpFrom(cl *classState) {
	if !cl.class.Git() {
		c.pump(cl)
		return
	}
	for i := Push; i.Git(); i++ {
		if c.classes[i].queue.n > 0 {
			c.pump(&c.classes[i])
		}
	}
}

// await blocks until w is decided, its wait limit is over or ctx is done.
func (c *Controller) await(ctx context.Context, w *waiter, limit time.Duration) (Permit, *Refusal) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.done:
	case <-ctx.Done():
	case <-timer.C:
	}
	return c.collect(w, ctx.Err() != nil)
}

// collect settles a wait. gone says that the client has left: a permit it was
// granted meanwhile is handed on as if it had never been taken.
func (c *Controller) collect(w *waiter, gone bool) (Permit, *Refusal) {
	c.lock(zeroTime)
	defer c.mu.Unlock()
	switch {
	case w.state == refused:
		return Permit{}, w.refusal
	case w.state == granted && !gone:
		c.count(w.class, DecisionWaited)
		return w.permit, nil
	case w.state == granted:
		c.handOn(w.permit)
		return Permit{}, c.refuse(&w.claim, verdict{}, ReasonGone, true)
	}
	reason, shared := ReasonWaitTimeout, w.parked == nil || !w.parked.callerScope()
	if gone {
		reason = ReasonGone
	}
	c.leave(w)
	cause := c.check(&w.claim)
	c.pump(&c.classes[w.class])
	c.arm()
	return Permit{}, c.refuse(&w.claim, cause, reason, shared)
}

// handOn undoes a grant that nobody took: places, caps and tokens.
func (c *Controller) handOn(p Permit) {
	rec := p.record()
	if rec == nil {
		return
	}
	cl := &c.classes[rec.class]
	if rec.paid {
		cl.bucket.giveBack(c.now, 1)
	}
	cl.bytes.giveBack(c.now, rec.bytes)
	c.giveBackCaller(rec, cl)
	c.free(rec)
	c.permits.remove(p, rec)
	c.settleQueue(cl)
}

// giveBackCaller returns the token that rec took of its caller's bucket.
func (c *Controller) giveBackCaller(rec *permitRecord, cl *classState) {
	if rec.callerPaid {
		c.giveBackToken(cl, rec.keys[ByAddress], rec.over&(1<<ByAddress) != 0)
	}
}

// settleQueue lets go who can after something of cl was given back.
func (c *Controller) settleQueue(cl *classState) {
	if c.waiters == 0 {
		return
	}
	c.pumpFrom(cl)
	c.arm()
}
