package admission

// parking holds the waiters that one caller's own limit stops, so that they hold
// nobody else up. As many are woken as the limit lets go; a woken waiter that
// then finds another limit in its way passes its chance on. Waking is O(log n),
// whatever the number parked. Guarded by Controller.mu.
type parking struct {
	key    parkKey
	class  Class
	scope  Scope
	lanes  lanes
	woken  int // ready and not yet granted
	queued int // for parkCap: waiters with this key, here or ready
	fresh  int // of queued: newcomers
	at     int64
	pos    int // in Controller.alarms; -1 = not there
}

// parkKey names a parking. id is an entry's id, or a small number where the
// limit has no entry of its own.
type parkKey struct {
	id   uint64
	kind parkKind
}

type parkKind uint8

const (
	parkCap      parkKind = iota // behind a caller's cap
	parkBucket                   // behind a caller's bucket
	parkUnproven                 // behind the part open to unproven callers
)

func (pk *parking) rank() int64  { return pk.at }
func (pk *parking) setPos(i int) { pk.pos = i }

// callerScope reports whether the caller alone is what holds the parked up.
func (pk *parking) callerScope() bool {
	return pk.key.kind != parkUnproven && pk.key.id&idBit != 0 && pk.scope.full() == ReasonCallerCap
}

// overflowID stands for the overflow entry of a class and scope.
func overflowID(c Class, s Scope) uint64 { return uint64(c)<<4 | uint64(s) }

// parkingOf returns the parking of a key, made if need be.
func (c *Controller) parkingOf(k parkKey, class Class, s Scope) *parking {
	pk := c.parkings[k]
	if pk == nil {
		pk = &parking{key: k, class: class, scope: s, pos: -1}
		if c.parkings == nil {
			c.parkings = make(map[parkKey]*parking)
		}
		c.parkings[k] = pk
	}
	return pk
}

// discard forgets a parking that nobody refers to.
func (c *Controller) discard(pk *parking) {
	if pk.lanes.n() > 0 || pk.woken > 0 || pk.queued > 0 {
		return
	}
	c.silence(pk)
	delete(c.parkings, pk.key)
}

// stopperKey names the parking for what v says stops q.
func (c *Controller) stopperKey(q *claim, v verdict) parkKey {
	k := parkKey{kind: parkCap}
	switch {
	case v.reason == ReasonUnprovenFull:
		k = parkKey{id: uint64(q.class), kind: parkUnproven}
	case v.over:
		k.id = overflowID(q.class, v.scope)
	default:
		k.id = c.callers.id(q.class, v.scope, q.keys[v.scope])
	}
	if v.delay > 0 {
		k.kind = parkBucket
	}
	return k
}

// park sets a ready waiter aside behind what v says stops it.
func (c *Controller) park(w *waiter, v verdict) {
	c.passOn(w) // before it goes, so that its caller keeps its turn
	c.classes[w.class].queue.ready.lane(w).remove(w)
	pk := c.parkingOf(c.stopperKey(&w.claim, v), w.class, v.scope)
	pk.lanes.add(w)
	w.parked = pk
	c.wake(pk)
}

// passOn ends w's claim to be the one woken, so that another may be.
func (c *Controller) passOn(w *waiter) {
	if pk := w.woken; pk != nil {
		w.woken = nil
		pk.woken--
		c.wake(pk)
	}
}

// wake makes as many parked waiters ready as the limit lets go, or sets the
// alarm for the next. The class must be pumped afterwards.
func (c *Controller) wake(pk *parking) {
	for pk.lanes.n() > 0 {
		n, at := c.openings(pk)
		if n <= 0 {
			c.alarm(pk, at)
			return
		}
		w := pk.lanes.next(false)
		pk.lanes.served(w)
		w.parked, w.woken = nil, pk
		pk.woken++
		c.classes[pk.class].queue.ready.add(w)
	}
	c.silence(pk)
	c.discard(pk)
}

// openings returns how many more waiters the limit lets go now, and for a
// bucket when the next.
func (c *Controller) openings(pk *parking) (n int, at int64) {
	cl := &c.classes[pk.class]
	if pk.key.kind == parkUnproven {
		return cl.policy.UnprovenMax - cl.unproven - pk.woken, 0
	}
	e := &cl.overflow[pk.scope]
	if pk.key.id&idBit != 0 {
		if e = c.callers.find(pk.key.id); e == nil {
			e = &callerEntry{}
		}
	}
	if pk.key.kind == parkCap {
		return cl.policy.CallerMax[pk.scope] - int(e.count) - pk.woken, 0
	}
	if d := cl.caller.shortage(c.now, e.full, 1); d > 0 {
		return 0, c.now + d
	}
	return 1 - pk.woken, 0
}

// promised returns the cap whose last opening belongs to somebody it has woken,
// so that w must queue up behind those parked there. Continuations take an
// opening first and need not ask.
func (c *Controller) promised(w *waiter, cl *classState) verdict {
	for s, limit := range cl.policy.CallerMax {
		if limit == 0 || w.keys[s] == 0 {
			continue
		}
		v := verdict{reason: Scope(s).full(), scope: Scope(s), over: w.over&(1<<s) != 0}
		count := 0
		if e := w.entry(cl, v.scope); e != nil {
			count = int(e.count)
		}
		if c.spokenFor(w, v, limit-count) {
			return v
		}
	}
	v := verdict{reason: ReasonUnprovenFull}
	if limit := cl.policy.UnprovenMax; limit > 0 && !w.proven && c.spokenFor(w, v, limit-cl.unproven) {
		return v
	}
	return verdict{}
}

// spokenFor reports whether all openings of what v names belong to others.
func (c *Controller) spokenFor(w *waiter, v verdict, openings int) bool {
	pk := c.parkings[c.stopperKey(&w.claim, v)]
	return pk != nil && pk != w.woken && pk.woken >= openings
}

// released wakes who waits for what rec has just given back.
func (c *Controller) released(rec *permitRecord, cl *classState) {
	if rec.unproven {
		c.wakeKey(parkKey{id: uint64(cl.class), kind: parkUnproven})
	}
	for s := range NumScopes {
		if rec.counted&(1<<s) == 0 {
			continue
		}
		id := overflowID(cl.class, s)
		if rec.over&(1<<s) == 0 {
			id = c.callers.id(cl.class, s, rec.keys[s])
		}
		c.wakeKey(parkKey{id: id, kind: parkCap})
		if s == ByAddress {
			c.wakeKey(parkKey{id: id, kind: parkBucket})
		}
	}
}

func (c *Controller) wakeKey(k parkKey) {
	if pk := c.parkings[k]; pk != nil {
		c.wake(pk)
	}
}
