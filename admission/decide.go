package admission

import "math/bits"

// claim is one request in the form the decision works on.
type claim struct {
	class  Class
	cont   bool
	proven bool
	back   bool // comes back when told to: does not wait for tokens
	group  Key
	keys   [NumScopes]Key
	bytes  int64

	// Results of the last check, good until the table changes.
	found [NumScopes]*callerEntry
	over  uint16 // scopes, as bits, that must use the overflow entry
}

// newClaim takes over what r says; a class that does not exist is Other.
func newClaim(r *Request) claim {
	return claim{class: min(r.Class, Other), cont: r.Continuation, proven: r.Proven, back: r.ComesBack, group: r.Group, keys: r.Keys, bytes: r.Bytes}
}

// verdict is the answer to a claim. ReasonNone means it fits.
type verdict struct {
	reason Reason
	scope  Scope // for a cap: whose
	over   bool  // for a cap or caller bucket: the overflow entry's
	delay  int64 // for a bucket: ns until the token is there
}

// check says whether q could be taken now. It changes nothing but forgets
// entries that may be forgotten. The caller's own limits are looked at first, so
// that a refusal names the caller where the caller is to blame.
func (c *Controller) check(q *claim) verdict {
	cl := &c.classes[q.class]
	if c.closed && cl.policy.Max != Unlimited {
		return verdict{reason: ReasonShutdown}
	}
	if cl.tracked != 0 {
		c.lookUp(q, cl)
		if v := c.checkCaller(q, cl); v.reason != ReasonNone {
			return v
		}
	}
	if r := c.full(cl); r != ReasonNone {
		return verdict{reason: r}
	}
	if p := &cl.policy; p.UnprovenMax > 0 && !q.proven && cl.unproven >= p.UnprovenMax {
		return verdict{reason: ReasonUnprovenFull}
	}
	return c.checkBuckets(q, cl)
}

// lookUp finds the table entries of q, and marks the scopes that the table has
// no room for.
func (c *Controller) lookUp(q *claim, cl *classState) {
	missing := c.findAll(q, cl)
	if missing == 0 {
		return
	}
	room, moved := c.callers.room(c.now)
	if moved {
		missing = c.findAll(q, cl)
	}
	for m := missing; m != 0; m &= m - 1 {
		if room--; room < 0 {
			q.over |= m & -m
		}
	}
}

func (c *Controller) findAll(q *claim, cl *classState) (missing uint16) {
	q.over = 0
	for m := cl.tracked; m != 0; m &= m - 1 {
		s := Scope(bits.TrailingZeros16(m))
		q.found[s] = nil
		if k := q.keys[s]; k != 0 {
			if q.found[s] = c.callers.find(c.callers.id(cl.class, s, k)); q.found[s] == nil {
				missing |= m & -m
			}
		}
	}
	return missing
}

// entry returns what scope s of q is counted in: its own entry, the overflow
// entry, or nil for a caller that would get a new one.
func (q *claim) entry(cl *classState, s Scope) *callerEntry {
	if q.over&(1<<s) != 0 {
		return &cl.overflow[s]
	}
	return q.found[s]
}

func (c *Controller) checkCaller(q *claim, cl *classState) verdict {
	for m := cl.tracked; m != 0; m &= m - 1 {
		s := Scope(bits.TrailingZeros16(m))
		e := q.entry(cl, s)
		if e == nil {
			continue
		}
		over := q.over&(1<<s) != 0
		if limit := cl.policy.CallerMax[s]; limit > 0 && int(e.count) >= limit {
			return verdict{reason: pick(over, ReasonOverflow, s.full()), scope: s, over: over}
		}
		if s == ByAddress && cl.caller.on && !q.cont {
			if d := cl.caller.shortage(c.now, e.full, 1); d > 0 {
				return verdict{reason: pick(over, ReasonOverflow, ReasonCallerBucket), scope: s, over: over, delay: d}
			}
		}
	}
	return verdict{}
}

func pick(over bool, yes, no Reason) Reason {
	if over {
		return yes
	}
	return no
}

func (c *Controller) checkBuckets(q *claim, cl *classState) verdict {
	if q.cont {
		return verdict{}
	}
	if d := cl.bucket.shortage(c.now, 1); d > 0 {
		return verdict{reason: ReasonClassBucket, delay: d}
	}
	if d := cl.bytes.shortage(c.now, cl.bytes.charge(q.bytes)); d > 0 {
		return verdict{reason: ReasonByteBucket, delay: d}
	}
	return verdict{}
}

// take grants q, which check has just found to fit.
func (c *Controller) take(q *claim) Permit {
	cl := &c.classes[q.class]
	p, rec := c.permits.add(c)
	rec.class, rec.start = q.class, c.now
	rec.group, rec.keys = q.group, q.keys
	rec.unproven = !q.proven
	c.occupy(cl, rec.unproven)
	if cl.tracked != 0 {
		c.countCaller(q, cl, rec)
	}
	if !q.cont {
		rec.paid = cl.bucket.take(c.now, 1)
		if n := cl.bytes.charge(q.bytes); cl.bytes.take(c.now, n) {
			rec.bytes = n
		}
	}
	return p
}

// countCaller counts rec in every tracked scope and charges the caller's
// bucket. Entries that exist come first: adding one may move others.
func (c *Controller) countCaller(q *claim, cl *classState, rec *permitRecord) {
	var missing uint16
	for m := cl.tracked; m != 0; m &= m - 1 {
		s := Scope(bits.TrailingZeros16(m))
		if q.keys[s] == 0 {
			continue
		}
		rec.counted |= 1 << s
		if e := q.entry(cl, s); e != nil {
			c.charge(rec, cl, e, s, q.cont)
		} else {
			missing |= 1 << s
		}
	}
	rec.over = q.over
	for m := missing; m != 0; m &= m - 1 {
		s := Scope(bits.TrailingZeros16(m))
		c.charge(rec, cl, c.callers.insert(c.callers.id(cl.class, s, q.keys[s]), cl.class), s, q.cont)
	}
}

func (c *Controller) charge(rec *permitRecord, cl *classState, e *callerEntry, s Scope, cont bool) {
	e.count++
	if s == ByAddress && cl.caller.on && !cont {
		rec.callerPaid = true
		e.full = cl.caller.taken(c.now, e.full)
	}
}
