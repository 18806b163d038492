package gate

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
)

// Bounds of abandoned work. A client that hangs up does not stop the upstream's
// child, so its permit is kept while the answer is drained: otherwise clients
// that start clones and leave would put any number of them on the upstream.
const (
	drainTime  = 30 * time.Second
	drainBytes = 64 << 20
	cutHold    = 5 * time.Second // how long a permit outlives work that was cut for a newer one
)

var (
	errDrained = errors.New("abandoned work was not over in time")
	errCut     = errors.New("too much abandoned work; the oldest was cut")
)

// abandonable reports whether the upstream has everything it needs to go on
// without the client: a read whose body was complete.
func (s *subject) abandonable(b *body) bool {
	return (s.result.Kind == classify.ReadRPC || s.result.Kind == classify.ArchiveRPC) && b != nil && b.complete
}

// abandonment is one request whose client may leave. leave is idempotent and
// safe for concurrent use.
type abandonment struct {
	once   sync.Once
	permit admission.Permit
	dog    *watchdog
	list   *abandonedWork
	max    int // how many of the class may be abandoned at once

	timer *time.Timer
	cut   bool // by cutOldest; protected by list.mu
	left  bool // protected by list.mu
}

// leave keeps the permit as abandoned and bounds the drain.
func (a *abandonment) leave() {
	a.once.Do(func() {
		if !a.permit.Abandon() {
			return
		}
		a.list.add(a)
	})
}

// abandonedWork lists the abandoned requests of a State per class, oldest
// first.
//
// mu protects the lists and the flags of their members; it is held for no I/O.
// A watchdog is cut after unlocking.
type abandonedWork struct {
	mu    sync.Mutex
	lists [admission.NumClasses][]*abandonment
	cuts  int64
}

func (w *abandonedWork) add(a *abandonment) {
	c := a.permit.Class()
	var oldest *abandonment
	w.mu.Lock()
	a.left = true
	a.timer = time.AfterFunc(drainTime, func() { a.dog.cutWith(errDrained) })
	w.lists[c] = append(w.lists[c], a)
	if len(w.lists[c]) > max(a.max, 1) {
		oldest = w.lists[c][0]
		oldest.cut = true
		w.lists[c] = w.lists[c][1:]
		w.cuts++
	}
	w.mu.Unlock()
	if oldest != nil {
		oldest.dog.cutWith(errCut)
	}
}

// done forgets a and reports whether its client had left, and whether its
// permit must outlive it because the upstream may still be at work.
func (w *abandonedWork) done(a *abandonment) (left, cut bool) {
	a.once.Do(func() {}) // nobody leaves any more
	w.mu.Lock()
	defer w.mu.Unlock()
	if !a.left {
		return false, false
	}
	a.timer.Stop()
	l := &w.lists[a.permit.Class()]
	for i, o := range *l {
		if o == a {
			*l = append((*l)[:i], (*l)[i+1:]...)
			break
		}
	}
	return true, a.cut
}

// AbandonedCut counts abandoned requests that were cut because half of their
// class was abandoned.
func (s *State) AbandonedCut() int64 {
	s.abandoned.mu.Lock()
	defer s.abandoned.mu.Unlock()
	return s.abandoned.cuts
}

// abandonWith prepares for a client that leaves: the context for next does not
// end with the client's, and the returned stop ends the preparation.
func (x *exchange) abandonWith(client context.Context, dog *watchdog) (stop func()) {
	c := x.g.state.Controller.Policy().Classes[x.s.class]
	x.left = &abandonment{permit: x.permit, dog: dog, list: &x.g.state.abandoned, max: c.Max / 2}
	x.out.abandon = x.left.leave
	cancel := context.AfterFunc(client, x.out.leave)
	return func() { cancel() }
}
