package spool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Item is one kept delivery as an operator sees it. It holds no credential;
// Sealed names what was sealed. Strings of the sender are bounded.
type Item struct {
	ID         string    `json:"id"` // the spool's own number
	Hook       string    `json:"hook"`
	Provider   string    `json:"provider,omitempty"`
	Delivery   string    `json:"delivery,omitempty"` // as the sender numbers it
	Event      string    `json:"event,omitempty"`
	Repository string    `json:"repository,omitempty"`
	Bytes      int64     `json:"bytes"` // of the body
	Received   time.Time `json:"received"`
	State      string    `json:"state"`          // due, waiting, attempting, dead
	Dead       string    `json:"dead,omitempty"` // why, a DeadReason
	Attempts   int       `json:"attempts,omitempty"`
	Last       string    `json:"last,omitempty"` // how the last attempt ended
	NotBefore  time.Time `json:"not_before,omitzero"`
	NotAfter   time.Time `json:"not_after,omitzero"`
	Recovery   string    `json:"recovery,omitempty"` // of a dead one: who recovers it and how
}

// Filter selects deliveries; zero fields select all.
type Filter struct {
	Hook       string
	Repository string
	State      string // due (also waiting and attempting) or dead
	Limit      int    // 0 = all
}

// Detail is an Item with what is sent.
type Detail struct {
	Item
	Path     string      `json:"path,omitempty"`
	Header   http.Header `json:"header"`
	Restored []string    `json:"restored,omitempty"` // headers the configuration supplies
	Sealed   bool        `json:"sealed,omitempty"`   // credentials are kept beside it, encrypted
	Body     []byte      `json:"body,omitempty"`     // base64 in JSON
}

// List returns what is kept, oldest first.
func (s *Spool) List(f Filter) []Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	return list(s.entries, f, s.stateLocked)
}

func list(entries map[uint64]*entry, f Filter, state func(*entry) string) []Item {
	var found []*entry
	for _, e := range entries {
		if f.match(e) {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b *entry) int { return cmp.Compare(a.seq, b.seq) })
	if f.Limit > 0 && len(found) > f.Limit {
		found = found[:f.Limit]
	}
	items := make([]Item, len(found))
	for i, e := range found {
		items[i] = e.item(state(e))
	}
	return items
}

func (f *Filter) match(e *entry) bool {
	return (f.Hook == "" || f.Hook == e.hook) && (f.Repository == "" || f.Repository == e.repo) &&
		(f.State == "" || (f.State == "dead") == (e.Dead != ""))
}

func (e *entry) stateName(now time.Time) string {
	switch {
	case e.Dead != "":
		return "dead"
	case e.NotBefore > now.UnixNano():
		return "waiting"
	}
	return "due"
}

func (e *entry) item(state string) Item {
	it := Item{
		ID: formatID(e.seq), Hook: e.hook, Provider: e.provider, Delivery: e.id, Event: e.event,
		Repository: e.repo, Bytes: e.body, Received: fromNano(e.received), State: state,
		Dead: e.Dead, Attempts: e.Attempts, Last: e.Last,
		NotBefore: fromNano(e.NotBefore), NotAfter: fromNano(e.notAfter),
	}
	if e.Dead != "" {
		it.Recovery = Recovery(e.provider, WayDead).How
	}
	return it
}

// Show returns one delivery with its headers, and its body when asked.
func (s *Spool) Show(id string, body bool) (Detail, error) {
	it, seq, err := s.find(id)
	if err != nil {
		return Detail{}, err
	}
	f, h, text, off, err := s.readEntry(seq)
	if err != nil {
		return Detail{Item: it}, err
	}
	defer f.Close()
	return detail(it, f, off, &h, text, body)
}

func detail(it Item, f File, off int64, h *recordHead, text *facts, body bool) (Detail, error) {
	d := Detail{Item: it, Path: text.Path, Header: text.Header, Restored: text.Restored, Sealed: len(text.Sealed) > 0}
	if !body {
		return d, nil
	}
	var err error
	d.Body, err = readBody(f, off, h)
	return d, err
}

func (s *Spool) find(id string) (it Item, seq uint64, err error) {
	if seq, err = strconv.ParseUint(id, 10, 64); err != nil {
		return it, 0, ErrNotFound
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[seq]
	if e == nil {
		return it, 0, ErrNotFound
	}
	return e.item(s.stateLocked(e)), seq, nil
}

func (s *Spool) stateLocked(e *entry) string {
	if e.Dead == "" && s.attemptingLocked(e) {
		return "attempting"
	}
	return e.stateName(s.now())
}

// Replay makes a delivery due now, with all its tries again: a dead one
// goes back to its place in its repository's line, a waiting one need not
// wait. It is durable when Replay returns.
func (s *Spool) Replay(ctx context.Context, id string) error {
	w, err := s.revive(id)
	if err != nil {
		return err
	}
	return s.await(ctx, w)
}

func (s *Spool) revive(id string) (*write, error) {
	seq, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return nil, ErrNotFound
	}
	s.mu.Lock()
	defer s.unlockAndTell()
	e := s.entries[seq]
	switch {
	case e == nil:
		return nil, ErrNotFound
	case s.closing:
		return nil, ErrClosed
	case e.Dead == string(DeadCorrupt):
		return nil, ErrCorrupt
	case e.expired(s.now()):
		return nil, ErrExpired
	}
	h := s.hooks[e.hook]
	if e.Dead == "" {
		e.state = state{Last: e.Last, DueSince: e.DueSince}
		if h != nil {
			h.sched.Retry(e.repo, e.seq, s.now())
		}
	} else {
		s.aliveLocked(e)
	}
	if h != nil {
		h.down.until = time.Time{}
		h.kickLocked()
	}
	w := s.noteLocked(e)
	w.wait, w.done = true, make(chan struct{})
	return w, nil
}

// aliveLocked takes a dead entry back among the due.
func (s *Spool) aliveLocked(e *entry) {
	s.countDeadLocked(e, -1)
	s.unlistDeadLocked(e)
	e.state = state{Last: e.Last, DueSince: s.now().UnixNano()} // its age starts again
	if e.id != "" {
		if _, ok := s.due[e.key()]; !ok {
			s.due[e.key()] = committed(e.seq)
		}
	}
	if h := s.hooks[e.hook]; h != nil {
		h.sched.Add(e.repo, e.seq, e.trial(), s.now())
	}
}

// Drop removes a delivery for good. It is durable when Drop returns. An
// attempt that runs is not called back.
func (s *Spool) Drop(ctx context.Context, id string) error {
	seq, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return ErrNotFound
	}
	s.mu.Lock()
	e := s.entries[seq]
	if e == nil || s.closing {
		s.mu.Unlock()
		return ErrNotFound
	}
	s.dropLocked(e, DropOperator)
	w := s.queue[len(s.queue)-1]
	w.wait, w.done = true, make(chan struct{})
	s.unlockAndTell()
	return s.await(ctx, w)
}

// Export writes the selected deliveries as one JSON object a line, with
// bodies and without credentials. One that cannot be read is left out and
// named in the error.
func (s *Spool) Export(w io.Writer, f Filter) error {
	return export(w, s.List(f), s.Show)
}

func export(w io.Writer, items []Item, show func(string, bool) (Detail, error)) error {
	enc := json.NewEncoder(w)
	var errs []error
	for _, it := range items {
		d, err := show(it.ID, true)
		switch {
		case errors.Is(err, ErrNotFound): // settled since it was listed
		case err != nil:
			errs = append(errs, fmt.Errorf("delivery %s: %w", it.ID, err))
		default:
			if err := enc.Encode(d); err != nil {
				return err
			}
		}
	}
	return errors.Join(errs...)
}

// Reader reads a spool's files without its lock, for a gateway that is down.
// It changes nothing and starts nothing.
type Reader struct {
	disk   Disk
	found  *contents
	report OpenReport
}

// OpenReader reads the directory. A nil disk is the operating system's.
func OpenReader(dir string, d Disk) (*Reader, error) {
	if d == nil {
		d = realDisk{}
	}
	salt, _, err := readFormat(d, dir)
	if err != nil {
		return nil, err
	}
	found, err := readLog(d, dir, salt)
	if err != nil {
		return nil, err
	}
	r := &Reader{disk: d, found: found}
	r.report = OpenReport{Kept: len(found.entries), Segments: len(found.segs), Damaged: found.damaged, Torn: found.torn}
	for _, g := range found.segs {
		r.report.Bytes += g.size
	}
	return r, nil
}

// Report says what was found.
func (r *Reader) Report() OpenReport { return r.report }

// List returns what is kept, oldest first.
func (r *Reader) List(f Filter) []Item {
	now := time.Now()
	return list(r.found.entries, f, func(e *entry) string { return e.stateName(now) })
}

// Show returns one delivery.
func (r *Reader) Show(id string, body bool) (Detail, error) {
	seq, err := strconv.ParseUint(id, 10, 64)
	e := r.found.entries[seq]
	if err != nil || e == nil {
		return Detail{}, ErrNotFound
	}
	f, err := r.disk.Open(e.at.seg.name)
	if err != nil {
		return Detail{}, diskError("open", err)
	}
	defer f.Close()
	h, text, err := readRecord(f, e.at.off, e.at.seg)
	if err != nil {
		return Detail{}, err
	}
	return detail(e.item(e.stateName(time.Now())), f, e.at.off, &h, text, body)
}

// Export is Spool.Export.
func (r *Reader) Export(w io.Writer, f Filter) error { return export(w, r.List(f), r.Show) }
