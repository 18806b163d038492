package gate

import (
	"context"
	"slices"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// startLane hands the tokens of the login-start budget to waiters. Who was
// served least recently goes first, by caller, then by caller group, so that a
// flood from many addresses delays an honest newcomer by one token and not by
// the whole flood, and fresh addresses of one network stand behind another's;
// a caller's second waiter stands behind every caller's first. An address that
// stands for n callers has n firsts and n turns. A full lane drops the waiter that would be served last.
//
// Guarded by IngressState.mu. When the end of a waiter's context and its turn
// meet, the end wins and the token is not taken.
type startLane struct {
	bucket  *admission.Bucket // nil until first used
	waiting []*startWaiter
	groups  servedTable
	callers servedTable
	seq     uint64 // of the last waiter
	turn    uint64 // of the last service
}

type startWaiter struct {
	startClaim
	seq     uint64
	place   uint64        // waiters of the same caller before it
	wake    chan struct{} // closed to make the waiter look again
	dropped bool
}

// startClaim is who asks for a login.
type startClaim struct {
	group, caller admission.Key
	callers       uint64 // how many the caller's address stands for, at least 1
}

// laneMax bounds the lane whatever the class's wait size: every turn looks at
// all waiters.
const laneMax = 1024

// servedMax bounds the callers and groups whose last turn is remembered.
const servedMax = 4096

// servedTable remembers when somebody was served; the oldest turn is
// forgotten first, which ranks its owner as if never served.
type servedTable struct {
	at    map[admission.Key]lastTurn
	order []servedTurn // oldest first
}

type lastTurn struct {
	turn  uint64 // of the last service that counted, from 1
	since uint64 // services since then, fewer than the owner has in one turn
}

type servedTurn struct {
	who  admission.Key
	turn uint64
}

// served counts a service of k, which has n of them in a turn.
func (t *servedTable) served(k admission.Key, turn, n uint64) {
	if t.at == nil {
		t.at = map[admission.Key]lastTurn{}
	}
	last, again := t.at[k]
	if last.since++; last.since >= n {
		last = lastTurn{turn: turn}
	} else if again {
		t.at[k] = last
		return
	}
	t.at[k] = last
	t.order = append(t.order, servedTurn{k, last.turn})
	if len(t.order) <= servedMax {
		return
	}
	if old := t.order[0]; t.at[old.who].turn == old.turn {
		delete(t.at, old.who)
	}
	t.order = t.order[1:]
}

// acquireStart takes one token of the login-start budget, waiting as long and
// among as many as the class allows. It returns the reason of a refusal and
// when to come back.
func (s *IngressState) acquireStart(ctx context.Context, p *admission.ClassPolicy, who startClaim) (admission.Reason, time.Duration) {
	now := clock()
	s.mu.Lock()
	l := &s.login.starts
	l.applyLocked(p.Bucket, now)
	if !p.Bucket.On() || p.DryRun {
		s.mu.Unlock()
		return admission.ReasonNone, 0
	}
	l.seq++
	me := &startWaiter{startClaim: who, seq: l.seq, wake: make(chan struct{})}
	l.addLocked(me)
	if len(l.waiting) > min(max(p.WaitSize, 1), laneMax) {
		l.dropLocked(l.worstLocked())
	}
	s.mu.Unlock()
	deadline := time.NewTimer(p.WaitMax)
	defer deadline.Stop()
	for first := true; ; first = false {
		reason, again, wake := s.tryStart(me, ctx, first && (p.WaitSize == 0 || p.WaitMax == 0))
		if again == 0 && wake == nil {
			return reason, s.startRetry()
		}
		if reason, over := waitTurn(ctx, again, wake, deadline.C); over {
			return s.leaveStart(me, reason)
		}
	}
}

// waitTurn waits until the waiter should look again; over means it must leave.
func waitTurn(ctx context.Context, again time.Duration, wake <-chan struct{}, deadline <-chan time.Time) (reason admission.Reason, over bool) {
	var turn <-chan time.Time
	if again > 0 {
		t := time.NewTimer(again)
		defer t.Stop()
		turn = t.C
	}
	select {
	case <-turn:
	case <-wake:
	case <-deadline:
		return admission.ReasonWaitTimeout, true
	case <-ctx.Done():
		return admission.ReasonGone, true
	}
	return admission.ReasonNone, false
}

// tryStart lets me take a token if it is first and one is there. Otherwise it
// returns when or on what to look again; neither means the matter is decided.
func (s *IngressState) tryStart(me *startWaiter, ctx context.Context, once bool) (reason admission.Reason, again time.Duration, wake <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.login.starts
	if me.dropped {
		return admission.ReasonQueueFull, 0, nil
	}
	now := clock()
	wait := l.bucket.Shortage(now, 1)
	first := l.bestLocked() == me
	switch {
	case ctx.Err() != nil:
		l.removeLocked(me)
		return admission.ReasonGone, 0, nil
	case first && wait == 0:
		l.bucket.Take(now, 1)
		l.turn++
		l.groups.served(me.group, l.turn, 1)
		l.callers.served(me.caller, l.turn, me.callers)
		l.removeLocked(me)
		return admission.ReasonNone, 0, nil
	case once:
		l.removeLocked(me)
		return admission.ReasonClassBucket, 0, nil
	case first:
		again = max(wait, time.Millisecond)
	}
	if isClosed(me.wake) {
		me.wake = make(chan struct{})
	}
	return admission.ReasonNone, again, me.wake
}

// leaveStart removes a waiter that gave up.
func (s *IngressState) leaveStart(me *startWaiter, reason admission.Reason) (admission.Reason, time.Duration) {
	s.mu.Lock()
	s.login.starts.removeLocked(me)
	s.mu.Unlock()
	return reason, s.startRetry()
}

func (s *IngressState) startRetry() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.login.starts
	if l.bucket == nil {
		return time.Second
	}
	per := time.Duration(float64(time.Second) / max(l.bucket.Policy().PerSecond, 1e-3))
	return retryAfter(time.Duration(len(l.waiting)+1) * per)
}

// giveBackStart returns the token of a start that got no place.
func (s *IngressState) giveBackStart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := &s.login.starts; l.bucket != nil {
		l.bucket.GiveBack(clock(), 1)
		l.wakeLocked()
	}
}

func (l *startLane) applyLocked(p admission.BucketPolicy, now time.Time) {
	if l.bucket == nil {
		l.bucket = admission.NewBucket(p, now)
	}
	l.bucket.Apply(p, now)
}

func (l *startLane) addLocked(w *startWaiter) {
	for _, o := range l.waiting {
		if o.caller == w.caller {
			w.place++
		}
	}
	l.waiting = append(l.waiting, w)
}

// rankLocked orders waiters: lower goes first.
func (l *startLane) rankLocked(w *startWaiter) [4]uint64 {
	return [4]uint64{w.place / w.callers, l.callers.at[w.caller].turn, l.groups.at[w.group].turn, w.seq}
}

func less(a, b [4]uint64) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

func (l *startLane) bestLocked() (best *startWaiter) {
	for _, w := range l.waiting {
		if best == nil || less(l.rankLocked(w), l.rankLocked(best)) {
			best = w
		}
	}
	return best
}

func (l *startLane) worstLocked() (worst *startWaiter) {
	for _, w := range l.waiting {
		if worst == nil || less(l.rankLocked(worst), l.rankLocked(w)) {
			worst = w
		}
	}
	return worst
}

func (l *startLane) dropLocked(w *startWaiter) {
	w.dropped = true
	l.removeLocked(w)
	closeOnce(w.wake)
}

// removeLocked takes w out and lets the new first look at the bucket.
func (l *startLane) removeLocked(w *startWaiter) {
	i := slices.Index(l.waiting, w)
	if i < 0 {
		return
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	for _, o := range l.waiting {
		if o.caller == w.caller && o.seq > w.seq {
			o.place--
		}
	}
	l.wakeLocked()
}

func (l *startLane) wakeLocked() {
	if best := l.bestLocked(); best != nil {
		closeOnce(best.wake)
	}
}

func closeOnce(c chan struct{}) {
	if !isClosed(c) {
		close(c)
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
