package spool

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
)

const (
	asideDir   = "aside"
	asideBound = 16 // damaged files kept for an operator; the oldest goes beyond
)

// clean gives room back. Segments leave in order of age, so that the record
// that a delivery is done never leaves before the delivery itself. The oldest
// goes when nothing in it is kept; when the files hold more than twice what
// is kept (and two segments), what is kept in the oldest is written again at
// the end first.
func (s *Spool) clean() {
	for {
		seg, live := s.oldest()
		if seg == nil {
			return
		}
		if live {
			if err := s.carry(seg); err != nil {
				s.settle(err)
				return
			}
		}
		if err := s.discard(seg); err != nil {
			s.settle(err)
			return
		}
	}
}

// oldest returns the segment that may go now, and whether something in it is
// kept.
func (s *Spool) oldest() (seg *segment, live bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.segs) == 0 || s.segs[0] == s.log.seg {
		return nil, false
	}
	seg = s.segs[0]
	if seg.live == 0 {
		return seg, false
	}
	if s.stats.diskFailing {
		return nil, false
	}
	var size, kept int64
	for _, g := range s.segs {
		size += g.size
		kept += g.live
	}
	if size-kept > kept+2*s.log.segSize {
		return seg, true
	}
	return nil, false
}

// discard removes a segment, or sets it aside when it is damaged. A removal is
// durable before the next one; usually the sync for a new segment, which is
// needed anyway, has made it so.
func (s *Spool) discard(seg *segment) error {
	err := s.log.syncDir(s.log.removed)
	if err != nil {
		return err
	}
	if seg.bad > 0 {
		err = s.setAside(seg)
	} else {
		err = s.disk.Remove(seg.name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return diskError("remove", err)
	}
	s.log.removed = true
	s.mu.Lock()
	s.segs = s.segs[1:]
	if seg.bad > 0 {
		s.tellLocked(Event{Kind: EventSetAside, Count: seg.bad})
	}
	s.unlockAndTell()
	return nil
}

func (s *Spool) setAside(seg *segment) error {
	dir := filepath.Join(s.dir, asideDir)
	if err := s.disk.MkdirAll(dir); err != nil {
		return err
	}
	names, err := s.disk.List(dir)
	if err != nil {
		return err
	}
	for len(names) >= asideBound {
		if err := s.disk.Remove(filepath.Join(dir, names[0])); err != nil {
			return err
		}
		names = names[1:]
	}
	return s.disk.Rename(seg.name, filepath.Join(dir, filepath.Base(seg.name)))
}

// carry writes what is kept in seg again at the end of the log, durably.
func (s *Spool) carry(seg *segment) error {
	f, err := s.disk.Open(seg.name)
	if err != nil {
		return diskError("open", err)
	}
	defer f.Close()
	var batch []*write
	var moved []*entry
	for _, e := range s.keptIn(seg) {
		w, err := s.copyOf(f, seg, e)
		switch {
		case errors.Is(err, ErrCorrupt):
			s.mu.Lock()
			seg.bad++
			s.dropLocked(e, DropCorrupt)
			s.unlockAndTell()
		case err != nil:
			return err
		case w != nil:
			batch, moved = append(batch, w), append(moved, e)
		}
	}
	if len(batch) == 0 {
		return nil
	}
	s.mu.Lock()
	next := s.nextSeq
	s.mu.Unlock()
	fresh, err := s.log.append(batch, next)
	s.mu.Lock()
	defer s.unlockAndTell()
	s.takeLostLocked()
	if fresh != nil {
		s.segs = append(s.segs, fresh)
	}
	if err != nil {
		return err
	}
	for i, w := range batch {
		w.at.seg.size = w.at.off + w.size()
		s.moveLocked(moved[i], w)
	}
	return nil
}

// moveLocked makes the copy the entry's record, unless it was settled in the
// meantime: then the record of that still has to be written and undoes the
// copy.
func (s *Spool) moveLocked(e *entry, w *write) {
	if s.entries[e.seq] != e {
		return
	}
	e.at.seg.live -= e.size
	dead := e.Dead != ""
	if dead {
		s.countDeadLocked(e, -1)
	}
	s.refundLocked(e)
	e.at, e.size = w.at, w.size()
	s.chargeLocked(e)
	if dead {
		s.countDeadLocked(e, 1)
	}
	e.at.seg.live += e.size
}

func (s *Spool) keptIn(seg *segment) []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*entry
	for _, e := range s.entries {
		if e.at.seg == seg {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *entry) int { return cmp.Compare(a.seq, b.seq) })
	return list
}

// copyOf reads an entry's record for writing it again with its present
// state; nil when it is settled.
func (s *Spool) copyOf(f File, seg *segment, e *entry) (*write, error) {
	s.mu.Lock()
	off, here, now := e.at.off, s.entries[e.seq] == e, e.state
	s.mu.Unlock()
	if !here {
		return nil, nil
	}
	h, fs, err := readRecord(f, off, seg)
	if err != nil {
		return nil, err
	}
	body, err := readBody(f, off, &h)
	if err != nil {
		return nil, err
	}
	fs.state = now
	text, err := fs.encode()
	if err != nil {
		return nil, err
	}
	return &write{kind: recordKeep, seq: e.seq, facts: text, body: body, wait: true}, nil
}

// readRecord reads the head and the facts of the record at off.
func readRecord(f File, off int64, seg *segment) (recordHead, *facts, error) {
	size, err := f.Size()
	if err != nil {
		return recordHead{}, nil, diskError("read", err)
	}
	w := window{f: f, size: size}
	h, text, err := w.record(off, &seg.salt)
	if errors.Is(err, errHead) || errors.Is(err, errFacts) || errors.Is(err, errTorn) {
		return h, nil, ErrCorrupt
	}
	if err != nil {
		return h, nil, err
	}
	var fs facts
	if json.Unmarshal(text, &fs) != nil {
		return h, nil, ErrCorrupt
	}
	return h, &fs, nil
}
