package admission

import "time"

// CallerToken is a token taken from a caller's bucket by [Controller.TakeCaller].
// The zero value is none.
type CallerToken struct {
	c      *Controller
	class  Class
	caller Key
	over   bool // from the overflow entry
}

// CallerShortage is the time until the bucket that caller has in class holds n
// tokens; 0 when they are there, when the class has no such bucket, and for the
// zero key.
func (c *Controller) CallerShortage(class Class, caller Key, now time.Time, n int64) time.Duration {
	c.lock(now)
	defer c.mu.Unlock()
	_, d := c.callerLevel(class, caller, n)
	return time.Duration(d)
}

// TakeCaller takes one token of the bucket that caller has in class, or returns
// the time until it is there and changes nothing. It is for an embedder that
// decides about a request in parts; the request that follows is a Continuation,
// which is charged no bucket again.
func (c *Controller) TakeCaller(class Class, caller Key, now time.Time) (CallerToken, time.Duration) {
	c.lock(now)
	defer c.mu.Unlock()
	q, d := c.callerLevel(class, caller, 1)
	cl := &c.classes[class]
	if d > 0 || !cl.caller.on || caller == 0 {
		return CallerToken{}, time.Duration(d)
	}
	e := q.entry(cl, ByAddress)
	if e == nil {
		e = c.callers.insert(c.callers.id(class, ByAddress, caller), class)
	}
	e.full = cl.caller.taken(c.now, e.full)
	return CallerToken{c: c, class: class, caller: caller, over: q.over != 0}, 0
}

// GiveBack returns the token, for a request that was refused after all.
func (t CallerToken) GiveBack() {
	if t.c == nil {
		return
	}
	t.c.lock(zeroTime)
	defer t.c.mu.Unlock()
	t.c.giveBackToken(&t.c.classes[t.class], t.caller, t.over)
}

func (c *Controller) callerLevel(class Class, caller Key, n int64) (claim, int64) {
	cl := &c.classes[class]
	q := claim{class: class}
	if !cl.caller.on || caller == 0 {
		return q, 0
	}
	q.keys[ByAddress] = caller
	c.lookUp(&q, cl)
	full := int64(0)
	if e := q.entry(cl, ByAddress); e != nil {
		full = e.full
	}
	return q, cl.caller.shortage(c.now, full, n)
}

// giveBackToken returns a caller's token; an entry forgotten meanwhile was full
// again and needs none.
func (c *Controller) giveBackToken(cl *classState, caller Key, over bool) {
	e := &cl.overflow[ByAddress]
	if !over {
		e = c.callers.find(c.callers.id(cl.class, ByAddress, caller))
	}
	if e != nil {
		e.full -= cl.caller.interval
	}
}
