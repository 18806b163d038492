package gate

import (
	"errors"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// errDisplaced cuts an unknown sender whose permit a known one needs.
var errDisplaced = errors.New("permit given to a known sender")

// hookClaim is what the decision about one delivery needs to know.
type hookClaim struct {
	now    time.Time
	keys   [admission.NumScopes]admission.Key // of the caller; empty: not a caller
	group  admission.Key
	known  bool  // listed as a sender; learned ones are found by group
	listed bool  // the configuration lists senders at all
	charge int64 // declared bytes, or the profile's charge
	own    string
	hook   *hook
}

// hookHold is a webhook permit with what it was charged. Fields after arrived
// are guarded by IngressState.mu.
type hookHold struct {
	cut     func(error)
	arrived atomic.Int64 // body bytes read so far

	permit    admission.Permit
	would     *admission.Refusal // what dry run let pass; not changed later
	known     bool
	reading   bool // the body is incomplete
	ended     bool
	displaced bool
	start     time.Time
	charged   int64   // of the group's byte bucket
	own       *budget // nil: none
	ownBytes  int64
	share     *budget // of an unknown sender, nil: not limited
	shareByte int64
}

// hookRefusal says why no permit was granted.
type hookRefusal struct {
	outcome HookOutcome
	reason  admission.Reason
	retry   time.Duration
}

// admitHook decides about the group's buckets, the hook's own, the sender's
// share and the permit together, all or nothing. cut ends the request early
// when its permit goes to a known sender.
//
// While any sender is known, an unknown one must leave the last quarter of
// the group's buckets, has at most a quarter of them for its whole caller
// group, and loses its permit during its body when a known one needs it.
func (s *IngressState) admitHook(q *hookClaim, cut func(error)) (*hookHold, *hookRefusal) {
	s.mu.Lock()
	hold, displaced, ref := s.admitHookLocked(q, cut)
	s.mu.Unlock()
	if displaced != nil {
		displaced.cut(errDisplaced)
	}
	return hold, ref
}

func (s *IngressState) admitHookLocked(q *hookClaim, cut func(error)) (hold, displaced *hookHold, _ *hookRefusal) {
	p := &s.controller.Policy().Classes[admission.Webhook]
	hold, req, short := s.prepareLocked(p, q, cut)
	if short != nil {
		if !p.DryRun {
			s.controller.CountRefusal(admission.Webhook, short.reason)
			return nil, nil, short
		}
		req.Stopped = short.reason
	}
	if hold.known && len(s.holds) >= p.Max && !p.DryRun && s.onlyPlaceMissing(&req, p) {
		displaced = s.displaceLocked()
	}
	permit, ref := s.controller.TryAdmit(&req)
	if ref != nil && !ref.Would {
		if displaced != nil {
			s.grantLocked() // its place is free
		}
		return nil, displaced, hookRefusalOf(ref)
	}
	hold.would = ref
	hold.permit = permit
	s.chargeLocked(p, q, hold, &req)
	s.holds[hold] = struct{}{}
	return hold, displaced, nil
}

// prepareLocked makes what the engine decides about, and the refusal of the
// budgets that it does not know.
func (s *IngressState) prepareLocked(p *admission.ClassPolicy, q *hookClaim, cut func(error)) (hold *hookHold, req admission.Request, short *hookRefusal) {
	hold = &hookHold{cut: cut, start: q.now, reading: true, known: q.known || s.senders.has(q.group, q.now)}
	strict := !hold.known && (q.listed || s.senders.any(q.now))
	req = admission.Request{Class: admission.Webhook, Now: q.now, Group: q.group, Proven: hold.known, Bytes: q.charge, Keys: q.keys}
	if strict {
		req.Bytes = min(req.Bytes, max(1, p.Bytes.Burst/4))
		if !p.Bytes.On() {
			req.Bytes = q.charge
		}
		hold.share = s.strangers.get(q.group, quarter(p.Bucket), quarter(p.Bytes), q.now)
	}
	hold.own = s.ownLocked(q.own, q.hook.Bucket, q.hook.Bytes, q.now)
	return hold, req, s.shortageLocked(p, q, hold, &req, strict)
}

// shortageLocked checks the budgets that the engine does not know.
func (s *IngressState) shortageLocked(p *admission.ClassPolicy, q *hookClaim, hold *hookHold, req *admission.Request, strict bool) *hookRefusal {
	if hold.own != nil {
		if wait := hold.own.shortage(q.now, q.charge); wait > 0 {
			return &hookRefusal{HookOwnBucket, admission.ReasonClassBucket, retryAfter(wait)}
		}
	}
	if !strict {
		return nil
	}
	requests, bytes := s.controller.Levels(admission.Webhook, q.now)
	wait := max(floorWait(p.Bucket, requests, 1), floorWait(p.Bytes, bytes, req.Bytes), hold.share.shortage(q.now, req.Bytes))
	if wait > 0 {
		return &hookRefusal{HookSender, admission.ReasonClassBucket, retryAfter(wait)}
	}
	return nil
}

// floorWait is the time until n tokens can be taken without touching the last
// quarter of the bucket.
func floorWait(p admission.BucketPolicy, level float64, n int64) time.Duration {
	if !p.On() {
		return 0
	}
	missing := float64(p.Burst)/4 + float64(n) - level
	if missing <= 0 {
		return 0
	}
	return time.Duration(math.Ceil(min(missing/p.PerSecond, 300) * float64(time.Second)))
}

// onlyPlaceMissing reports whether one place more would admit req: neither its
// caller's own limits nor a bucket are in the way.
func (s *IngressState) onlyPlaceMissing(req *admission.Request, p *admission.ClassPolicy) bool {
	if s.controller.Stopper(req) != admission.ReasonPoolFull {
		return false
	}
	requests, bytes := s.controller.Levels(admission.Webhook, req.Now)
	return (!p.Bucket.On() || requests >= 1) && (!p.Bytes.On() || bytes >= float64(min(req.Bytes, p.Bytes.Burst)))
}

// displaceLocked ends the permit of the unknown sender that has been sending
// its body for longest, nil when there is none. The caller cuts its request
// after unlocking.
func (s *IngressState) displaceLocked() *hookHold {
	oldest := s.displaceable()
	if oldest != nil {
		oldest.displaced = true
		s.endLocked(oldest, admission.OutcomeDisplaced, clock())
	}
	return oldest
}

// displaceable is the permit that displaceLocked would end.
func (s *IngressState) displaceable() (oldest *hookHold) {
	for h := range s.holds {
		if !h.known && h.reading && (oldest == nil || h.start.Before(oldest.start)) {
			oldest = h
		}
	}
	return oldest
}

func (s *IngressState) chargeLocked(p *admission.ClassPolicy, q *hookClaim, hold *hookHold, req *admission.Request) {
	if p.Bytes.On() {
		hold.charged = min(req.Bytes, p.Bytes.Burst)
	}
	if hold.own != nil {
		hold.ownBytes = hold.own.bytes.Charge(q.charge)
		hold.own.take(q.now, q.charge)
	}
	if hold.share != nil {
		hold.shareByte = hold.share.bytes.Charge(req.Bytes)
		hold.share.take(q.now, req.Bytes)
	}
}

// bodyComplete ends the phase in which the permit can be taken away, and
// reports false when it was. Declared bytes that did not arrive are given back.
func (s *IngressState) bodyComplete(h *hookHold) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.reading = false
	if h.ended {
		return false
	}
	s.settleLocked(h, clock())
	return true
}

// end ends the permit once; later calls do nothing.
func (s *IngressState) end(h *hookHold, o admission.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(h, o, clock())
}

func (s *IngressState) endLocked(h *hookHold, o admission.Outcome, now time.Time) {
	if h.ended {
		return
	}
	h.ended = true
	delete(s.holds, h)
	s.settleLocked(h, now)
	h.permit.End(o)
	if o != admission.OutcomeDisplaced { // that place is taken already
		s.grantLocked()
	}
}

// settleLocked gives back what was charged and did not arrive, once. What
// arrived beyond an unknown sender's charge is taken from its share as far as
// that goes.
func (s *IngressState) settleLocked(h *hookHold, now time.Time) {
	arrived := h.arrived.Load()
	h.permit.GiveBackBytes(max(0, h.charged-arrived))
	if h.own != nil {
		h.own.bytes.GiveBack(now, max(0, h.ownBytes-arrived))
	}
	if h.share != nil {
		h.share.bytes.GiveBack(now, max(0, h.shareByte-arrived))
		if more := min(arrived-h.shareByte, int64(h.share.bytes.Level(now))); more > 0 {
			h.share.bytes.Take(now, more)
		}
	}
	h.charged, h.ownBytes, h.shareByte = min(h.charged, arrived), min(h.ownBytes, arrived), max(h.shareByte, arrived)
}

// verified remembers the sender's group.
func (s *IngressState) verified(group admission.Key, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.senders.add(group, now)
}

func hookRefusalOf(ref *admission.Refusal) *hookRefusal {
	out := &hookRefusal{HookPermit, ref.Reason, ref.RetryAfter}
	switch ref.Reason {
	case admission.ReasonClassBucket:
		out.outcome = HookRequests
	case admission.ReasonByteBucket:
		out.outcome = HookBytes
	case admission.ReasonShutdown:
		out.outcome = HookShutdown
	}
	return out
}

// retryAfter spreads a wait over half as much again, so that senders do not
// return together.
func retryAfter(wait time.Duration) time.Duration {
	return wait + time.Duration(rand.Int64N(int64(wait)/2+int64(time.Second)))
}
