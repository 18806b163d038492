package spool

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"
)

// Answer is what the sender is to be told.
type Answer struct {
	Status      int    // 202 when kept, else the receiver's
	Kept        bool   // durable in the spool under ID
	ID          string // the spool's own number; "" when not kept
	ContentType string // of Body
	Body        []byte // the receiver's, at most 4 KiB
}

// Accept takes one verified delivery for the named hook and returns what to
// tell the sender. It is the only call an ingress makes after verification.
//
// With keep "always" the delivery is written first and answered 202. With
// "overflow" it is offered to the receiver when a permit is free, nothing
// else is due and nothing of its repository is kept; an answer within
// FreshWait is passed on (a refusal that may pass is kept instead), otherwise
// it is written, answered 202, and the attempt that runs settles it. With
// "off" the receiver has until ctx ends.
//
// On an error nothing was acknowledged: tell the sender 503, and see
// [Reason]. When ctx ends first its cause is returned; the delivery may still
// reach the receiver.
func (s *Spool) Accept(ctx context.Context, hook string, d *Delivery) (Answer, error) {
	h, ok := s.Hook(hook)
	if !ok {
		return Answer{}, s.refused(ErrNoHook)
	}
	return h.Accept(ctx, d)
}

// Accept is Spool.Accept for this hook.
func (h *Hook) Accept(ctx context.Context, d *Delivery) (Answer, error) {
	s := h.s
	s.mu.Lock()
	rule := h.rule
	s.mu.Unlock()
	p, err := pack(h.name, &rule, s.sealer, d, s.now())
	var a Answer
	if err == nil {
		a, err = h.accept(ctx, p)
	}
	if err != nil {
		return Answer{}, s.refused(err)
	}
	return a, nil
}

func (h *Hook) accept(ctx context.Context, p *parcel) (Answer, error) {
	h.s.mu.Lock()
	mode := h.cfg.keep()
	h.s.mu.Unlock()
	switch mode {
	case KeepOff:
		return h.direct(ctx, p)
	case KeepAlways:
		return h.keep(ctx, p, 0, Trial{})
	}
	f, started, err := h.begin(p)
	switch {
	case err != nil:
		return Answer{}, err
	case f == nil:
		return h.keep(ctx, p, 0, Trial{})
	case !started:
		return h.join(ctx, f, p)
	}
	return h.fresh(ctx, f, p)
}

// keep writes the parcel and answers 202.
func (h *Hook) keep(ctx context.Context, p *parcel, seq uint64, t Trial) (Answer, error) {
	w, err := h.s.enqueue(p, seq, t)
	if err == nil {
		err = h.s.await(ctx, w)
	}
	if err != nil {
		return Answer{}, err
	}
	return keptAnswer(w.seq), nil
}

func keptAnswer(seq uint64) Answer {
	return Answer{Status: http.StatusAccepted, Kept: true, ID: formatID(seq)}
}

// direct waits for the receiver as long as the sender does.
func (h *Hook) direct(ctx context.Context, p *parcel) (Answer, error) {
	h.s.mu.Lock()
	r, c := h.receiver, h.cfg
	h.s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	stop := context.AfterFunc(h.s.base, cancel)
	defer stop()
	res := r.post(ctx, p.message(&c), c.Status)
	if ctx.Err() != nil && res.status == 0 {
		return Answer{}, context.Cause(ctx)
	}
	if res.status == 0 {
		return Answer{}, ErrUnreachable
	}
	return res.answer(), nil
}

func (r *result) answer() Answer {
	return Answer{Status: senderStatus(r.status), ContentType: r.contentType, Body: r.body}
}

func (p *parcel) message(c *HookConfig) *message {
	return &message{
		header: join(p.facts.Header, p.sent.Header, p.facts.Restored, c.Restore),
		path:   p.facts.Path, query: p.sent.Query, size: int64(len(p.body)),
		body: func() io.Reader { return bytes.NewReader(p.body) },
	}
}

// flight is a fresh attempt: of a delivery that is not kept, or not yet.
// Guarded by the spool's mutex, except done.
type flight struct {
	key   idKey
	repo  string
	seq   uint64 // its place in the repository's line, should it be kept
	done  chan struct{}
	res   result // once over
	over  bool
	left  bool   // nobody waits for the result: the attempt settles itself
	entry *entry // the kept delivery it settles then; nil = none
}

// begin starts a fresh attempt when one may be made. It returns nil when the
// delivery is to be kept, and the running attempt when there is one of the
// same delivery.
func (h *Hook) begin(p *parcel) (f *flight, started bool, err error) {
	s := h.s
	s.mu.Lock()
	defer s.unlockAndTell()
	if s.closing {
		return nil, false, ErrClosed
	}
	now := s.now()
	key := idKey{h.name, p.facts.ID, p.sum}
	if f := s.flights[key]; f != nil && key.id != "" {
		s.stats.duplicates++
		return f, false, nil
	}
	if !h.active || h.down.until.After(now) || !h.freeLocked() ||
		h.sched.Busy(p.facts.Repository) || h.sched.Due(now, true) {
		return nil, false, nil
	}
	f = &flight{key: key, repo: p.facts.Repository, seq: s.takeSeqLocked(), done: make(chan struct{})}
	h.sched.Begin(f.repo, f.seq)
	h.running++
	if key.id != "" {
		s.flights[key] = f
	}
	r, c := h.receiver, h.cfg
	s.tasks.Go(func() { h.fly(f, p, r, &c) })
	return f, true, nil
}

// fly makes the attempt.
func (h *Hook) fly(f *flight, p *parcel, r *receiver, c *HookConfig) {
	ctx, cancel := context.WithTimeout(h.s.base, c.timeout())
	defer cancel()
	res := r.post(ctx, p.message(c), c.Status)
	h.s.mu.Lock()
	defer h.s.unlockAndTell()
	h.endLocked()
	f.res, f.over = res, true
	h.s.stats.fresh[res.outcome]++
	close(f.done)
	if f.left {
		h.landLocked(f)
	}
	h.kickLocked()
}

// landLocked settles a flight that nobody waits for.
func (h *Hook) landLocked(f *flight) {
	h.forgetLocked(f)
	if e := f.entry; e != nil && e.seq == f.seq {
		h.settleLocked(e, f.res)
		return
	}
	now := h.s.now()
	h.reachLocked(f.res, now)
	h.sched.Done(f.repo, f.seq, now)
	if f.res.outcome == outcomeDone {
		h.s.supersedeLocked(f.key)
	}
}

func (h *Hook) forgetLocked(f *flight) {
	if h.s.flights[f.key] == f {
		delete(h.s.flights, f.key)
	}
}

// supersedeLocked drops the dead deliveries of an id that was delivered.
func (s *Spool) supersedeLocked(k idKey) {
	if k.id == "" {
		return
	}
	for _, seq := range append([]uint64(nil), s.dead[nameKey{k.hook, k.id}]...) {
		s.dropLocked(s.entries[seq], DropRevived)
		s.stats.revived++
	}
}

// fresh waits for the attempt, for at most FreshWait.
func (h *Hook) fresh(ctx context.Context, f *flight, p *parcel) (Answer, error) {
	h.s.mu.Lock()
	wait := h.cfg.freshWait()
	h.s.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-f.done:
		return h.landed(ctx, f, p)
	case <-timer.C:
	case <-ctx.Done():
		return h.leave(f, nil, context.Cause(ctx))
	}
	w, err := h.s.enqueue(p, f.seq, Trial{})
	if err == nil {
		err = h.s.await(ctx, w)
	}
	if err == nil {
		return h.leave(f, w, nil)
	}
	// It could not be kept: the attempt is the only hope left.
	select {
	case <-f.done:
		return h.landed(ctx, f, p)
	case <-ctx.Done():
		return h.leave(f, nil, err)
	}
}

// leave ends the wait for a flight: with w kept, the flight settles it.
func (h *Hook) leave(f *flight, w *write, err error) (Answer, error) {
	s := h.s
	s.mu.Lock()
	defer s.unlockAndTell()
	f.left = true
	if w != nil {
		f.entry = s.entries[w.seq]
	}
	if f.over {
		h.landLocked(f)
		h.kickLocked()
	}
	if err != nil {
		return Answer{}, err
	}
	return keptAnswer(w.seq), nil
}

// landed answers for a flight that is over while its sender waits.
func (h *Hook) landed(ctx context.Context, f *flight, p *parcel) (Answer, error) {
	switch f.res.outcome {
	case outcomeDone, outcomeNever:
		_, _ = h.leave(f, nil, ErrBusy)
		return f.res.answer(), nil
	}
	var t Trial
	if f.res.outcome == outcomeAgain {
		h.s.mu.Lock()
		p.facts.Last = f.res.text()
		t.fail(h.s.now(), h.wait)
		h.s.mu.Unlock()
	}
	a, err := h.keep(ctx, p, f.seq, t)
	h.s.mu.Lock()
	defer h.s.unlockAndTell()
	h.forgetLocked(f)
	now := h.s.now()
	h.reachLocked(f.res, now)
	if err != nil {
		h.sched.Done(f.repo, f.seq, now)
	} else {
		h.sched.Release(f.repo, f.seq, now)
	}
	h.kickLocked()
	return a, err
}

// join waits for the attempt at the same delivery that another request
// began, and otherwise keeps this one.
func (h *Hook) join(ctx context.Context, f *flight, p *parcel) (Answer, error) {
	h.s.mu.Lock()
	timer := time.NewTimer(h.cfg.freshWait())
	h.s.mu.Unlock()
	defer timer.Stop()
	select {
	case <-f.done:
		if f.res.outcome == outcomeDone || f.res.outcome == outcomeNever {
			return f.res.answer(), nil
		}
	case <-timer.C:
	case <-ctx.Done():
		return Answer{}, context.Cause(ctx)
	}
	return h.keep(ctx, p, 0, Trial{})
}
