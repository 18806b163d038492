package admission

// waiter is a request that waits. Guarded by Controller.mu, except done.
type waiter struct {
	claim
	seq     int64 // order of arrival
	state   waiterState
	permit  Permit   // once granted
	refusal *Refusal // once refused
	done    chan struct{}

	in     *rotation // the rotation it is in
	of     *rotationCaller
	pos    int      // in of.waiters
	parked *parking // where it is set aside; nil = in the class's ready lanes
	woken  *parking // who woke it, while it is ready
	under  [NumScopes]*parking

	member  *queueGroup
	arrival node[*waiter] // in member.waiters
	cost    int64         // what the byte bucket will be charged
}

type waiterState uint8

const (
	waiting waiterState = iota
	granted
	refused
)

func (w *waiter) rank() int64  { return w.seq }
func (w *waiter) setPos(i int) { w.pos = i }

// caller is who takes turns within the group.
func (q *claim) caller() Key {
	if k := q.keys[ByAddress]; k != 0 {
		return k
	}
	return q.keys[ByCredential]
}

// queue is everybody who waits for one class. Guarded by Controller.mu.
type queue struct {
	ready   lanes // those stopped by nothing but the class, the total or its buckets
	groups  map[Key]*queueGroup
	sizes   []ring[*queueGroup] // groups by their number of waiters
	largest int                 // highest index of sizes in use
	n       int                 // all waiters, parked ones included

	newcomers int    // of n: not continuations
	bytes     int64  // what the newcomers will be charged
	blocked   Reason // what stops the ready ones
	short     Reason // which of the class buckets is short, when one is
	wakeAt    int64  // when the class's bucket lets the next newcomer go; 0 = not waiting for it
}

// queueGroup is all waiters of one group, in order of arrival.
type queueGroup struct {
	key     Key
	waiters ring[*waiter]
	sized   node[*queueGroup]
}

// add enters w under its group.
func (q *queue) add(w *waiter) {
	g := q.groups[w.group]
	if g == nil {
		g = &queueGroup{key: w.group}
		g.sized.v = g
		if q.groups == nil {
			q.groups = make(map[Key]*queueGroup)
		}
		q.groups[g.key] = g
	} else {
		q.sizes[g.waiters.n].remove(&g.sized)
	}
	w.member, w.arrival.v = g, w
	g.waiters.push(&w.arrival)
	q.resized(g)
	q.n++
	if !w.cont {
		q.newcomers++
		q.bytes += w.cost
	}
}

// drop takes w out of its group.
func (q *queue) drop(w *waiter) {
	g := w.member
	q.sizes[g.waiters.n].remove(&g.sized)
	g.waiters.remove(&w.arrival)
	if g.waiters.n == 0 {
		delete(q.groups, g.key)
	} else {
		q.resized(g)
	}
	for q.largest > 0 && q.sizes[q.largest].n == 0 {
		q.largest--
	}
	w.member = nil
	q.n--
	if !w.cont {
		q.newcomers--
		q.bytes -= w.cost
	}
}

func (q *queue) resized(g *queueGroup) {
	for len(q.sizes) <= g.waiters.n {
		q.sizes = append(q.sizes, ring[*queueGroup]{})
	}
	q.sizes[g.waiters.n].push(&g.sized)
	q.largest = max(q.largest, g.waiters.n)
}

// victim returns who must go so that a newcomer of group k may enter a full
// queue: the newest waiter of the largest group, counting the newcomer in. nil
// means the newcomer itself, which also loses a tie.
func (q *queue) victim(k Key) *waiter {
	own := 0
	if g := q.groups[k]; g != nil {
		own = g.waiters.n
	}
	if q.largest <= own+1 {
		return nil
	}
	return q.sizes[q.largest].tail().v.waiters.tail().v
}
