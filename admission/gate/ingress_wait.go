package gate

import (
	"context"
	"slices"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// A hook that keeps its deliveries holds a verify permit for milliseconds, so
// its deliveries may wait for one for a moment rather than be lost. A hook
// whose permit covers the receiver's answer never waits.
const (
	hookWaitMax      = 500 * time.Millisecond
	hookWaiters      = 64 // known senders' and strangers' together
	hookWaitersOther = 16 // of them strangers'
)

// hookWaiter waits for a verify permit. Its fields are guarded by
// IngressState.mu until done is closed.
type hookWaiter struct {
	q     *hookClaim
	cut   func(error)
	known bool
	done  chan struct{}
	hold  *hookHold
	ref   *hookRefusal
}

// admitHookWaiting is admitHook that waits when only a permit is missing.
// Known senders go first, then who came first. Budgets are decided anew with
// the permit.
func (s *IngressState) admitHookWaiting(ctx context.Context, q *hookClaim, cut func(error)) (*hookHold, *hookRefusal) {
	s.mu.Lock()
	w := s.lineUpLocked(q, cut)
	s.mu.Unlock()
	if w == nil {
		return s.admitHook(q, cut)
	}
	timer := time.NewTimer(hookWaitMax)
	defer timer.Stop()
	select {
	case <-w.done:
		return w.hold, w.ref
	case <-timer.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiters, w); i >= 0 {
		s.waiters = slices.Delete(s.waiters, i, i+1)
		s.controller.CountRefusal(admission.Webhook, admission.ReasonWaitTimeout)
		w.ref = hookFull
	}
	return w.hold, w.ref
}

var hookFull = &hookRefusal{outcome: HookPermit, reason: admission.ReasonWaitTimeout, retry: time.Second}

// lineUpLocked makes a waiter when every permit is held, nobody need give one
// up for this sender, and there is a place to wait.
func (s *IngressState) lineUpLocked(q *hookClaim, cut func(error)) *hookWaiter {
	p := &s.controller.Policy().Classes[admission.Webhook]
	if len(s.holds) < p.Max || p.DryRun {
		return nil
	}
	hold, req, short := s.prepareLocked(p, q, cut)
	if short != nil || !s.onlyPlaceMissing(&req, p) || hold.known && s.displaceable() != nil {
		return nil
	}
	w := &hookWaiter{q: q, cut: cut, known: hold.known, done: make(chan struct{})}
	others := 0
	for _, o := range s.waiters {
		if !o.known {
			others++
		}
	}
	switch {
	case !w.known && (others >= hookWaitersOther || len(s.waiters) >= hookWaiters):
		return nil
	case w.known && len(s.waiters) >= hookWaiters && others == 0:
		return nil
	case w.known && len(s.waiters) >= hookWaiters:
		s.dropStrangerLocked()
	}
	at := len(s.waiters)
	if w.known {
		at -= others // strangers stand at the end
	}
	s.waiters = slices.Insert(s.waiters, min(at, len(s.waiters)), w)
	return w
}

// dropStrangerLocked refuses the stranger that came last; one waits.
func (s *IngressState) dropStrangerLocked() {
	last := len(s.waiters) - 1
	s.controller.CountRefusal(admission.Webhook, admission.ReasonDisplaced)
	s.waiters[last].ref = hookFull
	close(s.waiters[last].done)
	s.waiters = s.waiters[:last]
}

// grantLocked gives free permits to those who wait. One whose budget is spent
// by now is refused for that.
func (s *IngressState) grantLocked() {
	for len(s.waiters) > 0 {
		p := &s.controller.Policy().Classes[admission.Webhook]
		if len(s.holds) >= p.Max {
			return
		}
		w := s.waiters[0]
		s.waiters = slices.Delete(s.waiters, 0, 1)
		w.q.now = clock()
		w.hold, _, w.ref = s.admitHookLocked(w.q, w.cut)
		close(w.done)
	}
}
