package spool

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// Hook delivers what is kept under one name, and takes fresh deliveries for
// it. It lives as long as its spool: a configuration that no longer names it
// stops its attempts, one that names it again lets it go on. All methods are
// safe for concurrent use.
//
// At most Permits attempts run at a time, fresh and replayed together, and at
// most one per repository. Repositories that failed before (lane repair)
// leave one of the permits to the others when there are two or more.
type Hook struct {
	s    *Spool
	name string

	// Guarded by the spool's mutex.
	cfg      HookConfig
	rule     headerRule
	receiver *receiver
	sched    *Schedule
	active   bool
	running  int
	repairs  int // of running
	width    int // permits in use at most; 1 after the receiver was unreachable
	down     downState
	timer    *time.Timer
}

// downState is a receiver that cannot be reached. Nothing was delivered then,
// so no delivery is to blame: attempts stop for a while and none is counted.
type downState struct {
	since time.Time // zero = reachable
	until time.Time // no attempt earlier
	fails int
}

// SetHooks makes exactly these hooks active, at once and without losing an
// attempt that runs. It fails, changing nothing, when one of them is not
// valid or its TLS files cannot be read.
func (s *Spool) SetHooks(list []HookConfig) error {
	receivers, err := newReceivers(list)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.unlockAndTell()
	if s.closing {
		return ErrClosed
	}
	named := map[string]bool{}
	for i, c := range list {
		named[c.Name] = true
		s.hookLocked(c.Name).applyLocked(c, receivers[i])
	}
	for name, h := range s.hooks {
		if !named[name] {
			h.stopLocked()
		}
	}
	return nil
}

// CheckHooks reports what SetHooks would refuse; it reads TLS files.
func CheckHooks(list []HookConfig) error {
	_, err := newReceivers(list)
	return err
}

func newReceivers(list []HookConfig) ([]*receiver, error) {
	var errs []error
	receivers := make([]*receiver, len(list))
	for i := range list {
		err := list[i].Validate()
		if err == nil {
			receivers[i], err = newReceiver(&list[i])
		}
		errs = append(errs, err)
	}
	return receivers, errors.Join(errs...)
}

// Rest waits until no attempt runs. Without an active hook none begins.
func (s *Spool) Rest(ctx context.Context) error {
	for {
		s.mu.Lock()
		running := 0
		for _, h := range s.hooks {
			running += h.running
		}
		if running == 0 {
			s.mu.Unlock()
			return nil
		}
		if s.ended == nil {
			s.ended = make(chan struct{})
		}
		ended := s.ended
		s.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// endLocked notes that an attempt ended.
func (h *Hook) endLocked() {
	h.running--
	if h.s.ended != nil {
		close(h.s.ended)
		h.s.ended = nil
	}
}

// hookLocked returns the named hook, made with what is kept for it.
func (s *Spool) hookLocked(name string) *Hook {
	h := s.hooks[name]
	if h != nil {
		return h
	}
	h = &Hook{s: s, name: name, sched: NewSchedule(Limits{DefaultTries, DefaultTryFor})}
	s.hooks[name] = h
	now := s.now()
	for _, seq := range slices.Sorted(maps.Keys(s.entries)) {
		if e := s.entries[seq]; e.hook == name && e.Dead == "" {
			h.sched.Add(e.repo, e.seq, e.trial(), now)
		}
	}
	return h
}

// Hook returns the active hook of that name.
func (s *Spool) Hook(name string) (*Hook, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hooks[name]
	return h, h != nil && h.active
}

func (h *Hook) applyLocked(c HookConfig, r *receiver) {
	if h.receiver != nil {
		defer h.receiver.close()
	}
	h.cfg, h.receiver = c, r
	h.rule = newHeaderRule(c.Headers, c.SecretHeaders, c.Restore)
	h.cfg.Restore = h.rule.restore
	h.sched.SetLimits(c.limits())
	h.active, h.width, h.down = true, c.permits(), downState{}
	h.kickLocked()
}

func (h *Hook) stopLocked() {
	h.active = false
	if h.timer != nil {
		h.timer.Stop()
	}
}

// kickLocked starts every attempt that may start now and sets the timer for
// the next.
func (h *Hook) kickLocked() {
	if !h.active || h.s.closing {
		return
	}
	now := h.s.now()
	if h.down.until.After(now) {
		h.alarmLocked(h.down.until, now)
		return
	}
	for h.freeLocked() {
		turn, ok := h.sched.Next(now, h.repairLocked())
		if !ok {
			break
		}
		h.startLocked(turn)
	}
	if at, ok := h.sched.Wake(); ok && h.freeLocked() {
		h.alarmLocked(at, now)
	}
}

func (h *Hook) freeLocked() bool { return h.running < min(h.width, h.cfg.permits()) }

// repairLocked reports whether the lane repair may use another permit.
func (h *Hook) repairLocked() bool { return h.repairs < max(h.cfg.permits()-1, 1) }

func (h *Hook) alarmLocked(at, now time.Time) {
	if h.timer == nil {
		h.timer = time.AfterFunc(at.Sub(now), h.kick)
		return
	}
	h.timer.Reset(at.Sub(now))
}

func (h *Hook) kick() {
	h.s.mu.Lock()
	h.kickLocked()
	h.s.unlockAndTell()
}

// startLocked begins a replay.
func (h *Hook) startLocked(turn Turn) {
	e := h.s.entries[turn.Seq]
	now := h.s.now()
	switch {
	case e == nil || e.Dead != "": // the schedule never outlives the index
		h.sched.Done(turn.Repository, turn.Seq, now)
		return
	case e.expired(now):
		h.s.killLocked(e, DeadExpired, now)
		return
	}
	h.running++
	if turn.Lane == Repair {
		h.repairs++
	}
	r, c := h.receiver, h.cfg
	h.s.tasks.Go(func() { h.replay(e, turn, r, &c) })
}

// replay makes one attempt at a kept delivery.
func (h *Hook) replay(e *entry, turn Turn, r *receiver, c *HookConfig) {
	ctx, cancel := context.WithTimeout(h.s.base, c.timeout())
	defer cancel()
	res := h.s.send(ctx, e, r, c)
	h.s.mu.Lock()
	defer h.s.unlockAndTell()
	h.endLocked()
	if turn.Lane == Repair {
		h.repairs--
	}
	h.settleLocked(e, res)
	h.kickLocked()
}

// settleLocked applies what an attempt at a kept delivery gave.
func (h *Hook) settleLocked(e *entry, res result) {
	s, now := h.s, h.s.now()
	h.reachLocked(res, now)
	if s.entries[e.seq] != e || e.Dead != "" { // dropped in the meantime
		h.sched.Done(e.repo, e.seq, now)
		return
	}
	if res.outcome != outcomeStopped {
		s.stats.replayed[res.outcome]++
		e.Last = res.text()
	}
	switch res.outcome {
	case outcomeStopped, outcomeUnreachable:
		h.sched.Release(e.repo, e.seq, now)
	case outcomeDone:
		s.removeLocked(e)
	case outcomeNever:
		s.killLocked(e, orDefault(res.dead, DeadRefused), now)
	case outcomeAgain:
		t, dead := h.sched.Failed(e.repo, e.seq, now, h.wait)
		e.setTrial(t)
		if dead {
			s.killLocked(e, DeadExhausted, now)
		} else {
			s.noteLocked(e)
		}
	}
}

// wait is how long a delivery rests after its nth failure: 5 s, 20 s, 80 s,
// then 5 min, each spread by a quarter both ways.
func (h *Hook) wait(attempts int) time.Duration {
	return spread(5*time.Second<<min(2*(attempts-1), 8), 5*time.Minute, h.s.rand())
}

// spread bounds d and moves it by up to a quarter.
func spread(d, limit time.Duration, random float64) time.Duration {
	d = min(d, limit)
	return d - d/4 + time.Duration(random*float64(d/2))
}

// reachLocked follows whether the receiver can be reached. While it cannot,
// one attempt at a time looks again, 1 s to 30 s apart; when it can, the
// permits come back one by one with each delivery that is taken, so that a
// receiver that just started meets no herd.
func (h *Hook) reachLocked(res result, now time.Time) {
	switch res.outcome {
	case outcomeStopped:
	case outcomeUnreachable:
		if h.down.since.IsZero() {
			h.down.since = now
			h.s.tellLocked(Event{Kind: EventDown, Hook: h.name, Reason: res.text()})
		}
		h.width = 1
		if !h.down.until.After(now) {
			h.down.fails++
			h.down.until = now.Add(spread(time.Second<<min(h.down.fails-1, 5), 30*time.Second, h.s.rand()))
		}
	default:
		if !h.down.since.IsZero() {
			h.down = downState{}
			h.s.tellLocked(Event{Kind: EventUp, Hook: h.name})
		}
		if res.outcome == outcomeDone {
			h.width = min(h.width+1, h.cfg.permits())
		}
	}
}
