package admission

import (
	"math/bits"
	"slices"
	"time"
)

func (cl *classState) init(class Class, base time.Time) {
	cl.class = class
	cl.bucket.base, cl.bytes.base = base, base
}

// applyLocked puts p in force and carries everything over.
func (c *Controller) applyLocked(p *Policy) {
	c.unpark()
	c.policy, c.closed = p, false
	c.callers.max = p.CallersMax
	for i := range c.classes {
		c.applyClass(&c.classes[i], &p.Classes[i])
	}
	c.permits.each(c.recountPermit)
	c.recount()
	for i := range c.classes {
		c.reregister(&c.classes[i])
	}
	for i := range c.classes {
		c.pump(&c.classes[i])
	}
	c.arm()
}

func (c *Controller) applyClass(cl *classState, p *ClassPolicy) {
	cl.policy = *p
	cl.bucket.apply(p.Bucket, c.now)
	cl.bytes.apply(p.Bytes, c.now)
	c.convertCallers(cl, cl.caller.next(p.CallerBucket))
	cl.tracked = 0
	for s, limit := range p.CallerMax {
		if limit > 0 {
			cl.tracked |= 1 << s
		}
	}
	if cl.caller.on {
		cl.tracked |= 1 << ByAddress
	}
}

// convertCallers carries every caller's bucket level over to the new bucket.
func (c *Controller) convertCallers(cl *classState, next callerBucket) {
	prev := cl.caller
	cl.caller = next
	if next.interval == prev.interval && next.depth == prev.depth {
		return
	}
	c.callers.each(func(e *callerEntry) {
		if e.class == cl.class {
			e.full = prev.converted(c.now, e.full, next)
		}
	})
	o := &cl.overflow[ByAddress]
	o.full = prev.converted(c.now, o.full, next)
}

// recountPermit counts a permit in the scopes its class tracks now, and in the
// pool if it was granted outside it by a dry run that is over.
func (c *Controller) recountPermit(rec *permitRecord) {
	cl := &c.classes[rec.class]
	if rec.beyond {
		if cl.policy.DryRun {
			return
		}
		rec.beyond = false
		cl.beyond--
		c.occupy(cl, rec.unproven)
		if rec.abandoned {
			cl.abandoned++
		}
	}
	for m := rec.counted &^ cl.tracked; m != 0; m &= m - 1 {
		c.uncount(rec, cl, Scope(bits.TrailingZeros16(m)))
	}
	rec.counted &= cl.tracked
	rec.over &= cl.tracked
	for m := cl.tracked &^ rec.counted; m != 0; m &= m - 1 {
		if s := Scope(bits.TrailingZeros16(m)); rec.keys[s] != 0 {
			c.countIn(rec, cl, s)
		}
	}
}

// countIn counts rec in one more scope.
func (c *Controller) countIn(rec *permitRecord, cl *classState, s Scope) {
	rec.counted |= 1 << s
	id := c.callers.id(cl.class, s, rec.keys[s])
	e := c.callers.find(id)
	if e == nil {
		if room, _ := c.callers.room(c.now); room > 0 {
			e = c.callers.insert(id, cl.class)
		} else {
			rec.over |= 1 << s
			e = &cl.overflow[s]
		}
	}
	e.count++
}

// unpark makes every waiter ready and forgets what they were parked behind.
// Their turns and their order stay.
func (c *Controller) unpark() {
	for i := range c.classes {
		q := &c.classes[i].queue
		for _, w := range q.all() {
			if w.parked != nil {
				w.in.remove(w)
				q.ready.add(w)
			}
			w.parked, w.woken = nil, nil
			w.under = [NumScopes]*parking{}
		}
	}
	c.parkings, c.alarms = nil, nil
}

// reregister enters waiters anew where the new policy counts who waits.
func (c *Controller) reregister(cl *classState) {
	cl.queue.bytes = 0
	for _, w := range cl.queue.all() {
		w.cost = cl.bytes.charge(w.bytes)
		if !w.cont {
			cl.queue.bytes += w.cost
		}
		c.registerKeys(w, cl)
	}
}

// all returns the waiters in order of arrival.
func (q *queue) all() []*waiter {
	var all []*waiter
	for _, g := range q.groups {
		n := g.waiters.head
		for range g.waiters.n {
			all = append(all, n.v)
			n = n.next
		}
	}
	slices.SortFunc(all, func(a, b *waiter) int { return int(a.seq - b.seq) })
	return all
}
