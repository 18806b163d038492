package spool

import (
	"slices"
	"time"
)

// reserveLocked makes room for a new entry or says which bound forbids it.
// Dead deliveries give way first, oldest first: they failed, this one has
// not. Nothing gives way when even that would not make room.
func (s *Spool) reserveLocked(e *entry) error {
	if s.pending > 0 && s.pending+e.size > pendingBound {
		return &FullError{BoundPending, pendingBound}
	}
	all := usage{s.bytes, s.count, s.deadBytes, s.deads}
	if err := s.boundLocked(e, all.living(), s.usageLocked(e.line()).living()); err != nil {
		return err
	}
	own := func(o *entry) bool { return o.line() == e.line() }
	any := func(*entry) bool { return true }
	for {
		all := usage{s.bytes, s.count, s.deadBytes, s.deads}
		err := s.boundLocked(e, all, s.usageLocked(e.line()))
		if err == nil {
			s.chargeLocked(e)
			return nil
		}
		may := any
		if err.Bound == BoundRepository {
			may = own
		}
		if !s.giveWayLocked(may) && !s.giveWayLocked(any) {
			return err
		}
	}
}

// boundLocked returns the bound that forbids e beside all that is kept, of
// which own is its repository's. A repository may hold its share of what is
// free and its own together, so each storm leaves room for what comes next.
func (s *Spool) boundLocked(e *entry, all, own usage) *FullError {
	maxBytes, maxCount, share := s.cfg.maxBytes(), s.cfg.maxCount(), s.cfg.share()
	lineBytes := int64(share * float64(maxBytes-all.bytes+own.bytes))
	lineCount := int(share * float64(maxCount-all.count+own.count))
	switch {
	case all.bytes+e.size > maxBytes:
		return &FullError{BoundBytes, maxBytes}
	case all.count >= maxCount:
		return &FullError{BoundCount, int64(maxCount)}
	case own.count == 0, e.moved: // the first of its repository needs no share
	case own.bytes+e.size > lineBytes:
		return &FullError{BoundRepository, lineBytes}
	case own.count >= lineCount:
		return &FullError{BoundRepository, int64(lineCount)}
	}
	return nil
}

func (s *Spool) usageLocked(k lineKey) usage {
	if u := s.lines[k]; u != nil {
		return *u
	}
	return usage{}
}

// living is u without its dead deliveries, as if they had given way.
func (u usage) living() usage {
	return usage{bytes: u.bytes - u.deadBytes, count: u.count - u.dead}
}

// giveWayLocked drops the oldest dead entry that may go.
func (s *Spool) giveWayLocked(may func(*entry) bool) bool {
	var oldest *entry
	for _, e := range s.entries {
		if e.Dead != "" && may(e) && (oldest == nil || e.DeadAt < oldest.DeadAt) {
			oldest = e
		}
	}
	if oldest == nil {
		return false
	}
	s.dropLocked(oldest, DropGaveWay)
	return true
}

func (s *Spool) chargeLocked(e *entry) {
	u := s.lines[e.line()]
	if u == nil {
		u = &usage{}
		s.lines[e.line()] = u
	}
	u.bytes += e.size
	u.count++
	s.bytes += e.size
	s.count++
}

func (s *Spool) refundLocked(e *entry) {
	s.bytes -= e.size
	s.count--
	u := s.lines[e.line()]
	u.bytes -= e.size
	u.count--
	if u.count == 0 {
		delete(s.lines, e.line())
	}
}

// insertLocked takes a durable entry into the index. It is charged already.
func (s *Spool) insertLocked(e *entry) {
	s.entries[e.seq] = e
	e.at.seg.live += e.size
	if e.Dead != "" {
		s.markDeadLocked(e)
		return
	}
	if e.id != "" {
		s.due[e.key()] = committed(e.seq)
		for _, seq := range slices.Clone(s.dead[e.name()]) {
			s.dropLocked(s.entries[seq], DropRevived)
			s.stats.revived++
		}
	}
	if h := s.hooks[e.hook]; h != nil {
		h.sched.Add(e.repo, e.seq, e.trial(), s.now())
		h.kickLocked()
	}
}

// closed is what a finished write's done channel is.
var closedChannel = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// committed stands for the write of an entry that is durable.
func committed(seq uint64) *write { return &write{seq: seq, done: closedChannel} }

// removeLocked takes an entry out of the index and records that it needs
// nothing any more.
func (s *Spool) removeLocked(e *entry) {
	if s.entries[e.seq] != e {
		return
	}
	delete(s.entries, e.seq)
	e.at.seg.live -= e.size
	if e.Dead == "" {
		s.forgetDueLocked(e)
	} else {
		s.countDeadLocked(e, -1)
		s.unlistDeadLocked(e)
	}
	s.refundLocked(e)
	s.pushLocked(&write{kind: recordDone, seq: e.seq})
}

func (s *Spool) forgetDueLocked(e *entry) {
	if w, ok := s.due[e.key()]; ok && w.seq == e.seq {
		delete(s.due, e.key())
	}
	if h := s.hooks[e.hook]; h != nil {
		h.sched.Done(e.repo, e.seq, s.now())
	}
}

func (s *Spool) countDeadLocked(e *entry, n int) {
	u := s.lines[e.line()]
	u.dead += n
	u.deadBytes += int64(n) * e.size
	s.deads += n
	s.deadBytes += int64(n) * e.size
}

func (s *Spool) unlistDeadLocked(e *entry) {
	if e.id == "" {
		return
	}
	list := slices.DeleteFunc(s.dead[e.name()], func(seq uint64) bool { return seq == e.seq })
	if len(list) == 0 {
		delete(s.dead, e.name())
	} else {
		s.dead[e.name()] = list
	}
}

// killLocked sets a due entry aside.
func (s *Spool) killLocked(e *entry, why DeadReason, now time.Time) {
	if s.entries[e.seq] != e || e.Dead != "" {
		return
	}
	s.forgetDueLocked(e)
	e.Dead, e.DeadAt = string(why), now.UnixNano()
	s.markDeadLocked(e)
	s.stats.dead[why]++
	s.noteLocked(e)
	s.tellLocked(Event{Kind: EventDead, Hook: e.hook, ID: formatID(e.seq), Reason: string(why)})
}

func (s *Spool) markDeadLocked(e *entry) {
	s.countDeadLocked(e, 1)
	if e.id != "" {
		s.dead[e.name()] = append(s.dead[e.name()], e.seq)
	}
}

// dropLocked removes an entry that was not delivered.
func (s *Spool) dropLocked(e *entry, why DropReason) {
	if e == nil || s.entries[e.seq] != e {
		return
	}
	s.removeLocked(e)
	s.stats.dropped[why]++
	s.tellLocked(Event{Kind: EventDropped, Hook: e.hook, ID: formatID(e.seq), Reason: string(why)})
}

// sweep sets aside what is too old and removes what was dead for too long.
func (s *Spool) sweep() {
	s.mu.Lock()
	defer s.unlockAndTell()
	now := s.now()
	old := now.Add(-s.cfg.maxAge()).UnixNano()
	for _, e := range s.entries {
		switch {
		case e.Dead != "":
			if e.DeadAt < old {
				s.dropLocked(e, DropAged)
			}
		case s.attemptingLocked(e):
		case e.expired(now):
			s.killLocked(e, DeadExpired, now)
		case max(e.received, e.DueSince) < old:
			s.killLocked(e, DeadTooOld, now)
		}
	}
	for _, h := range s.hooks {
		h.kickLocked()
	}
}

func (s *Spool) attemptingLocked(e *entry) bool {
	h := s.hooks[e.hook]
	return h != nil && h.sched.Attempting(e.repo) == e.seq
}
