package admission

// rotation holds waiters and offers them fairly: one per group in turn, within a
// group one per caller in turn, within a caller the oldest. Every operation is
// O(log n) in the waiters of one caller at worst.
type rotation struct {
	groups map[Key]*rotationGroup
	order  ring[*rotationGroup]
	n      int
}

type rotationGroup struct {
	node    node[*rotationGroup]
	key     Key
	callers map[Key]*rotationCaller
	order   ring[*rotationCaller]
}

type rotationCaller struct {
	node    node[*rotationCaller]
	key     Key
	group   *rotationGroup
	waiters heap[*waiter]
}

// add puts w in. A group or caller that had nobody here joins at the end.
func (r *rotation) add(w *waiter) {
	g := r.groups[w.group]
	if g == nil {
		g = &rotationGroup{key: w.group, callers: make(map[Key]*rotationCaller)}
		g.node.v = g
		if r.groups == nil {
			r.groups = make(map[Key]*rotationGroup)
		}
		r.groups[w.group] = g
		r.order.push(&g.node)
	}
	k := w.caller()
	cr := g.callers[k]
	if cr == nil {
		cr = &rotationCaller{key: k, group: g}
		cr.node.v = cr
		g.callers[k] = cr
		g.order.push(&cr.node)
	}
	cr.waiters.push(w)
	w.in, w.of = r, cr
	r.n++
}

// next returns whose turn it is, or nil.
func (r *rotation) next() *waiter {
	if r.n == 0 {
		return nil
	}
	return r.order.head.v.order.head.v.waiters[0]
}

// served takes out the waiter that next returned and passes the turn on.
func (r *rotation) served(w *waiter) {
	w.of.group.order.turn()
	r.order.turn()
	r.remove(w)
}

// remove takes w out without touching anybody's turn.
func (r *rotation) remove(w *waiter) {
	cr := w.of
	cr.waiters.remove(w.pos)
	w.in, w.of = nil, nil
	r.n--
	if len(cr.waiters) > 0 {
		return
	}
	g := cr.group
	g.order.remove(&cr.node)
	delete(g.callers, cr.key)
	if g.order.n == 0 {
		r.order.remove(&g.node)
		delete(r.groups, g.key)
	}
}

// lanes are two rotations: continuations and newcomers. Two continuations go,
// then one newcomer.
type lanes struct {
	newcomers     rotation
	continuations rotation
	streak        int // continuations in a row while a newcomer waited
}

const streakMax = 2

func (l *lanes) n() int { return l.newcomers.n + l.continuations.n }

func (l *lanes) lane(w *waiter) *rotation {
	if w.cont {
		return &l.continuations
	}
	return &l.newcomers
}

func (l *lanes) add(w *waiter) { l.lane(w).add(w) }

// next returns whose turn it is, or nil; onlyContinuations passes newcomers
// over.
func (l *lanes) next(onlyContinuations bool) *waiter {
	if w := l.continuations.next(); w != nil && (onlyContinuations || l.streak < streakMax || l.newcomers.n == 0) {
		return w
	}
	if onlyContinuations {
		return nil
	}
	return l.newcomers.next()
}

// served takes out the waiter that next returned and passes the turn on.
func (l *lanes) served(w *waiter) {
	switch {
	case !w.cont || l.newcomers.n == 0:
		l.streak = 0
	case l.streak < streakMax:
		l.streak++
	}
	l.lane(w).served(w)
}
