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
	after   time.Time     // its caller has no token of its own before
	wake    chan struct{} // closed to make the waiter look again
	dropped bool
}

// startClaim is who asks for a login.
type startClaim struct {
	group, caller admission.Key
	own           admission.Key // whose own budget is charged; 0 for nobody's
	callers       uint64        // how many the caller's address stands for, at least 1
}

// laneMax bounds the lane whatever the class's wait size: every turn looks at
// all waiters.
const laneMax = 1024

// startTicket is what an admitted login start was charged.
type startTicket struct {
	caller admission.Key
	token  admission.CallerToken
	paid   bool // a token of the class's budget
}

// startRefusal says why a start was not admitted.
type startRefusal struct {
	reason admission.Reason
	retry  time.Duration
	would  bool // dry run: it goes on
}

// acquireStart takes one token of the login-start budget and one of the
// caller's own, both or none, waiting as long and among as many as the class
// allows. A caller that is short of its own holds nobody else up. In dry run a
// refusal comes with would set.
func (s *IngressState) acquireStart(ctx context.Context, p *admission.ClassPolicy, who startClaim) (startTicket, *startRefusal) {
	me, ticket, ref := s.joinStarts(p, who)
	if me == nil {
		return ticket, ref
	}
	deadline := time.NewTimer(p.WaitMax)
	defer deadline.Stop()
	for {
		ticket, ref, again, wake := s.tryStart(ctx, me)
		if again == 0 && wake == nil {
			return ticket, ref
		}
		if reason, over := waitTurn(ctx, again, wake, deadline.C); over {
			return startTicket{}, s.leaveStart(me, reason)
		}
	}
}

// joinStarts decides at once where nothing is limited, nothing may wait or
// waiting would be in vain; else it returns the waiter that has joined.
func (s *IngressState) joinStarts(p *admission.ClassPolicy, who startClaim) (*startWaiter, startTicket, *startRefusal) {
	now := clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.login.starts
	l.applyLocked(p.Bucket, now)
	if !p.Bucket.On() && !p.CallerBucket.On() {
		return nil, startTicket{}, nil
	}
	waits := p.WaitSize > 0 && p.WaitMax > 0
	me := &startWaiter{startClaim: who, place: l.placeLocked(who.caller), wake: make(chan struct{})}
	if own := s.ownWait(me, now, int64(me.place)+1); own > 0 && (!waits || p.DryRun || own > p.WaitMax) {
		return nil, startTicket{}, &startRefusal{admission.ReasonCallerBucket, retryAfter(own), p.DryRun}
	}
	if !waits || p.DryRun {
		if wait := l.bucket.Shortage(now, 1); wait > 0 {
			return nil, startTicket{}, &startRefusal{admission.ReasonClassBucket, s.startRetryLocked(), p.DryRun}
		}
		return nil, s.chargeStartLocked(me, now), nil
	}
	l.seq++
	me.seq = l.seq
	me.after = now.Add(s.ownWait(me, now, 1)) // so that a turn finds few that it must pass over
	l.waiting = append(l.waiting, me)
	if len(l.waiting) > min(p.WaitSize, laneMax) {
		l.dropLocked(l.worstLocked())
	}
	return me, startTicket{}, nil
}

// ownWait is the time until the waiter's caller has n tokens of its own.
func (s *IngressState) ownWait(w *startWaiter, now time.Time, n int64) time.Duration {
	return s.controller.CallerShortage(admission.LoginStart, w.own, now, n)
}

// chargeStartLocked takes the tokens that were just seen to be there.
func (s *IngressState) chargeStartLocked(w *startWaiter, now time.Time) startTicket {
	l := &s.login.starts
	token, _ := s.controller.TakeCaller(admission.LoginStart, w.own, now)
	l.bucket.Take(now, 1)
	l.turn++
	l.groups.served(w.group, l.turn, 1)
	l.callers.served(w.caller, l.turn, w.callers)
	return startTicket{caller: w.caller, token: token, paid: l.bucket.Policy().On()}
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

// tryStart lets me take its tokens if it is first among those whose callers
// have one and the class has one too. Otherwise it returns when or on what to
// look again; neither means the matter is decided.
func (s *IngressState) tryStart(ctx context.Context, me *startWaiter) (t startTicket, ref *startRefusal, again time.Duration, wake <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.login.starts
	if me.dropped {
		return t, &startRefusal{reason: admission.ReasonQueueFull, retry: s.startRetryLocked()}, 0, nil
	}
	if ctx.Err() != nil {
		l.removeLocked(me)
		return t, &startRefusal{reason: admission.ReasonGone}, 0, nil
	}
	now := clock()
	first, wait := s.firstLocked(now) == me, l.bucket.Shortage(now, 1)
	switch {
	case first && wait == 0:
		t = s.chargeStartLocked(me, now)
		l.removeLocked(me)
		return t, nil, 0, nil
	case first:
		again = max(wait, time.Millisecond)
	case me.after.After(now):
		again = max(me.after.Sub(now), time.Millisecond)
	}
	if isClosed(me.wake) {
		me.wake = make(chan struct{})
	}
	return t, nil, again, me.wake
}

// firstLocked is whose turn it is, nil when every caller that waits is short of
// its own tokens. Those it finds short are passed over until theirs are there.
func (s *IngressState) firstLocked(now time.Time) *startWaiter {
	for {
		best := s.login.starts.bestLocked(now)
		if best == nil {
			return nil
		}
		own := s.ownWait(best, now, 1)
		if own == 0 {
			return best
		}
		best.after = now.Add(own)
	}
}

// leaveStart removes a waiter that gave up.
func (s *IngressState) leaveStart(me *startWaiter, reason admission.Reason) *startRefusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.login.starts.removeLocked(me)
	return &startRefusal{reason: reason, retry: s.startRetryLocked()}
}

func (s *IngressState) startRetryLocked() time.Duration {
	l := &s.login.starts
	if l.bucket == nil {
		return time.Second
	}
	per := time.Duration(float64(time.Second) / max(l.bucket.Policy().PerSecond, 1e-3))
	return retryAfter(time.Duration(len(l.waiting)+1) * per)
}

// giveBackStart returns the tokens of a start that got no place.
func (s *IngressState) giveBackStart(t startTicket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.token.GiveBack()
	l := &s.login.starts
	if l.bucket == nil || !t.paid {
		return
	}
	l.bucket.GiveBack(clock(), 1)
	for _, w := range l.waiting {
		if w.caller == t.caller {
			w.after = time.Time{}
		}
	}
	l.wakeLocked()
}

func (l *startLane) applyLocked(p admission.BucketPolicy, now time.Time) {
	if l.bucket == nil {
		l.bucket = admission.NewBucket(p, now)
	}
	l.bucket.Apply(p, now)
}

// placeLocked is how many of the caller wait already.
func (l *startLane) placeLocked(caller admission.Key) (n uint64) {
	for _, o := range l.waiting {
		if o.caller == caller {
			n++
		}
	}
	return n
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

// bestLocked passes over those whose callers are short at now.
func (l *startLane) bestLocked(now time.Time) (best *startWaiter) {
	for _, w := range l.waiting {
		if w.after.After(now) {
			continue
		}
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
	if best := l.bestLocked(clock()); best != nil {
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
