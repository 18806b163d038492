package spool

import (
	"runtime"
	"time"
)

const (
	flushEvery = time.Second      // how long a settled delivery may be unsynced
	sweepEvery = 30 * time.Second // how exact ages are
)

// writer is the one goroutine that touches the log. Deliveries that wait at
// the same time share one sync.
func (s *Spool) writer() {
	defer close(s.gone)
	flush := time.NewTimer(flushEvery)
	flush.Stop()
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		timeToFlush := false
		select {
		case <-s.wake:
		case <-flush.C:
			timeToFlush = true
		case <-sweep.C:
			s.sweep()
		}
		s.gather()
		s.commit()
		if timeToFlush {
			s.settle(s.log.flush())
		}
		s.clean()
		if s.finished() {
			return
		}
		if s.log.dirty || s.queued() {
			flush.Reset(flushEvery)
		}
	}
}

// finished reports whether Close waits and nothing more can be written.
func (s *Spool) finished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.quit {
		return false
	}
	for _, w := range s.queue {
		if w.wait {
			return false
		}
	}
	return true
}

func (s *Spool) queued() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) > 0
}

// gatherTurns bounds how often the writer lets others run before it begins the
// next batch.
const gatherTurns = 64

// gather lets those whose deliveries were just written come back with their
// next ones, as many as waited together, so that all share one sync. Without
// it those that came during a sync and those that waited for it take turns, and
// half of the deliveries share each sync.
func (s *Spool) gather() {
	for range gatherTurns {
		if s.waiting() >= s.together {
			return
		}
		runtime.Gosched()
	}
}

// waiting is how many queued writes somebody waits for.
func (s *Spool) waiting() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return waitedFor(s.queue)
}

func waitedFor(list []*write) (n int) {
	for _, w := range list {
		if w.wait {
			n++
		}
	}
	return n
}

// commit writes what is queued as one batch.
func (s *Spool) commit() {
	s.mu.Lock()
	batch, next := s.queue, s.nextSeq
	s.queue, s.pending = nil, 0
	s.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	fresh, err := s.log.append(batch, next)
	s.mu.Lock()
	s.takeLostLocked()
	s.applyLocked(batch, fresh, err)
	s.diskStateLocked(err)
	s.together = waitedFor(batch) + waitedFor(s.queue)
	s.unlockAndTell()
	for _, w := range batch {
		if w.done != nil {
			close(w.done)
		}
	}
}

// applyLocked takes over what a batch did.
func (s *Spool) applyLocked(batch []*write, fresh *segment, err error) {
	if fresh != nil {
		s.segs = append(s.segs, fresh)
	}
	var again []*write
	for _, w := range batch {
		switch {
		case err == nil:
			w.at.seg.size = w.at.off + w.size()
			if w.entry != nil {
				w.entry.at = w.at
				s.stats.kept++
				s.insertLocked(w.entry)
			}
		case w.entry != nil:
			w.err = err
			s.refundLocked(w.entry)
			if s.due[w.entry.key()] == w {
				delete(s.due, w.entry.key())
			}
		default:
			w.err = err // for who waits; the record is tried again for the next start
			again = append(again, &write{kind: w.kind, seq: w.seq, facts: w.facts})
		}
	}
	s.queue = append(again, s.queue...)
}

// takeLostLocked queues settled deliveries whose record went with a segment
// that saw an error.
func (s *Spool) takeLostLocked() {
	s.queue = append(s.log.lost, s.queue...)
	s.log.lost = nil
}

// settle takes note of an error outside a batch.
func (s *Spool) settle(err error) {
	s.mu.Lock()
	s.takeLostLocked()
	s.diskStateLocked(err)
	s.unlockAndTell()
}

// diskStateLocked tells when the disk stops or begins to work.
func (s *Spool) diskStateLocked(err error) {
	if err != nil {
		s.stats.diskErrors++
	}
	if failing := err != nil; failing != s.stats.diskFailing {
		s.stats.diskFailing = failing
		kind := EventDiskOK
		if failing {
			kind = EventDiskFailed
		}
		s.tellLocked(Event{Kind: kind, Err: err})
	}
}
