package admission

import "time"

func (cl *classState) init(class Class, base time.Time) {
	cl.class = class
	cl.bucket.base, cl.bytes.base = base, base
}

// applyLocked puts p in force.
func (c *Controller) applyLocked(p *Policy) {
	c.policy, c.closed = p, false
	c.callers.max = p.CallersMax
	for i := range c.classes {
		c.applyClass(&c.classes[i], &p.Classes[i])
	}
	c.recount()
}

func (c *Controller) applyClass(cl *classState, p *ClassPolicy) {
	cl.policy = *p
	cl.bucket.apply(p.Bucket, c.now)
	cl.bytes.apply(p.Bytes, c.now)
	next := newCallerBucket(p.CallerBucket)
	if next != cl.caller {
		c.convertCallers(cl, next)
	}
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
	if !prev.on || !next.on {
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
