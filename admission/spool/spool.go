package spool

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"
)

// Spool keeps verified deliveries until their receiver took them. Open makes
// one; all methods are safe for concurrent use.
//
// One mutex guards everything in memory (index, schedules, counters); it is
// never held across file or network I/O or a callback. The writer goroutine
// alone touches the log.
type Spool struct {
	dir    string
	disk   Disk
	unlock func() error
	now    func() time.Time
	rand   func() float64
	report func(Event)
	sealer *sealer
	salt   salt
	opened OpenReport

	base   context.Context // ends with Close; attempts run under it
	cancel context.CancelFunc
	tasks  sync.WaitGroup // attempts
	wake   chan struct{}  // the writer has something to do
	gone   chan struct{}  // closed when the writer has ended

	log      *segmentLog // the writer's
	together int         // the writer's: deliveries that waited at the end of the last batch

	mu        sync.Mutex
	cfg       Config
	closing   bool // nothing new is taken
	quit      bool // no attempt runs any more: the writer ends
	nextSeq   uint64
	entries   map[uint64]*entry    // committed, due and dead
	due       map[idKey]*write     // due or being written; the write is nil once committed
	dead      map[nameKey][]uint64 // dead ones by sender's id
	lines     map[lineKey]*usage
	deads     int
	deadBytes int64
	bytes     int64 // of all records kept or being written
	count     int
	segs      []*segment // oldest first
	queue     []*write
	pending   int64 // bytes of queue
	hooks     map[string]*Hook
	flights   map[idKey]*flight // fresh attempts that are not kept
	ended     chan struct{}     // closed when an attempt ends; nil = nobody waits
	stats     counters
	events    []Event
}

// pendingBound is the most bytes that wait for a slow disk.
const pendingBound = 256 << 20

// Open opens or makes the spool of c.Dir and starts its writer. It fails
// without having changed anything with a LockedError, a FormatError or a
// DiskError; damaged records do not make it fail, see Report.
func Open(c Config) (*Spool, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &Spool{
		dir: c.Dir, cfg: c, disk: c.Disk, now: c.Now, rand: c.Rand, report: c.Log,
		wake: make(chan struct{}, 1), gone: make(chan struct{}),
		nextSeq: 1,
		entries: map[uint64]*entry{}, due: map[idKey]*write{}, dead: map[nameKey][]uint64{},
		lines: map[lineKey]*usage{}, hooks: map[string]*Hook{}, flights: map[idKey]*flight{},
	}
	if s.disk == nil {
		s.disk = realDisk{}
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.rand == nil {
		s.rand = rand.Float64
	}
	s.stats.init()
	if err := s.load(); err != nil {
		return nil, err
	}
	s.base, s.cancel = context.WithCancel(context.Background())
	s.flushEvents()
	go s.writer()
	return s, nil
}

// Report says what Open found.
func (s *Spool) Report() OpenReport { return s.opened }

// Dir returns the directory.
func (s *Spool) Dir() string { return s.dir }

// Close stops attempts without counting them as failed, makes everything
// durable and gives the directory free. Deliveries that are kept stay.
func (s *Spool) Close() error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		<-s.gone
		return nil
	}
	s.closing = true
	for _, h := range s.hooks {
		h.stopLocked()
	}
	s.mu.Unlock()
	s.cancel()
	s.tasks.Wait()
	s.mu.Lock()
	s.quit = true
	s.mu.Unlock()
	s.poke()
	<-s.gone
	err := s.log.finish()
	s.flushEvents()
	if e := s.unlock(); err == nil {
		err = e
	}
	return err
}

// SetLimits applies new bounds at once; nothing that is kept is dropped when
// they shrink. Dir, KeyFile and SegmentBytes stay as opened.
func (s *Spool) SetLimits(c Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.MaxBytes, s.cfg.MaxAge, s.cfg.MaxCount, s.cfg.RepositoryShare =
		c.MaxBytes, c.MaxAge, c.MaxCount, c.RepositoryShare
}

// Keep writes a verified delivery for the named hook and returns its id once
// it is durable: the record, and the directory when a file was begun, are
// synced. The hook need not be configured. An error means that nothing was
// acknowledged; when ctx ended first, or the disk failed in a way that cannot
// be undone, the delivery may still be delivered later.
//
// A delivery with the id and the body of one that is still due is that one:
// nothing is written and its id is returned. One with the id of a dead
// delivery takes its place at the end of the line.
func (s *Spool) Keep(ctx context.Context, hook string, d *Delivery) (id string, err error) {
	var rule headerRule
	s.mu.Lock()
	if h := s.hooks[hook]; h != nil {
		rule = h.rule
	}
	s.mu.Unlock()
	p, err := pack(hook, &rule, s.sealer, d, s.now())
	if err != nil {
		return "", s.refused(err)
	}
	w, err := s.enqueue(p, 0, Trial{})
	if err == nil {
		err = s.await(ctx, w)
	}
	if err != nil {
		return "", s.refused(err)
	}
	return formatID(w.seq), nil
}

// await waits until w is durable.
func (s *Spool) await(ctx context.Context, w *write) error {
	select {
	case <-w.done:
		return w.err
	default:
	}
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// enqueue hands a parcel to the writer; seq 0 takes the next number. For a
// duplicate it returns the write of the entry that is due, once that is found
// to be sound.
func (s *Spool) enqueue(p *parcel, seq uint64, t Trial) (*write, error) {
	e := newEntry(seq, &p.facts, int64(len(p.body)), 0)
	e.setTrial(t)
	p.facts.state = e.state
	text, err := p.facts.encode()
	if err != nil {
		return nil, err
	}
	w := &write{kind: recordKeep, facts: text, body: p.body, entry: e, wait: true, done: make(chan struct{})}
	e.size = w.size()
	for {
		s.mu.Lock()
		got, err := s.enqueueLocked(w)
		s.unlockAndTell()
		if err != nil || got == w || got.kind != 0 { // new, or being written
			return got, err
		}
		if bad, err := s.unsound(got.seq); bad == "" {
			return got, err
		} else {
			s.kill(got.seq, bad)
		}
	}
}

// unsound checks that a kept delivery could be delivered as it was accepted,
// before another like it is taken for it; bad says why not. It is "" with an
// error when that cannot be told, or when the delivery is gone: then it was
// delivered.
func (s *Spool) unsound(seq uint64) (bad DeadReason, err error) {
	f, h, text, off, err := s.readEntry(seq)
	if err == nil {
		defer f.Close()
		var ok bool
		if ok, err = bodySound(f, off, &h); err == nil && !ok {
			err = ErrCorrupt
		}
	}
	if err == nil {
		_, err = s.sealer.open(text.Sealed, text.Hook)
	}
	switch {
	case errors.Is(err, ErrNotFound):
		return "", nil
	case errors.Is(err, ErrCorrupt):
		return DeadCorrupt, nil
	case errors.Is(err, ErrNoKey):
		return DeadNoKey, nil
	}
	return "", err
}

func (s *Spool) kill(seq uint64, why DeadReason) {
	s.mu.Lock()
	defer s.unlockAndTell()
	if e := s.entries[seq]; e != nil {
		s.killLocked(e, why, s.now())
	}
}

func (s *Spool) enqueueLocked(w *write) (*write, error) {
	e := w.entry
	if s.closing {
		return nil, ErrClosed
	}
	due := e.id != "" && e.Dead == ""
	if due {
		if same, ok := s.due[e.key()]; ok {
			s.stats.duplicates++
			return same, nil
		}
	}
	if err := s.reserveLocked(e); err != nil {
		return nil, err
	}
	if e.seq == 0 {
		e.seq = s.takeSeqLocked()
	}
	w.seq = e.seq
	if due {
		s.due[e.key()] = w
	}
	s.pending += e.size
	s.pushLocked(w)
	return w, nil
}

func (s *Spool) takeSeqLocked() uint64 {
	n := s.nextSeq
	s.nextSeq++
	return n
}

func (s *Spool) pushLocked(w *write) {
	s.queue = append(s.queue, w)
	s.poke()
}

// poke wakes the writer.
func (s *Spool) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// refused counts err and returns it.
func (s *Spool) refused(err error) error {
	s.mu.Lock()
	s.stats.refused[Reason(err)]++
	s.mu.Unlock()
	return err
}

func formatID(seq uint64) string { return strconv.FormatUint(seq, 10) }

// noteLocked records the entry's changed state.
func (s *Spool) noteLocked(e *entry) *write {
	text, err := json.Marshal(e.state)
	if err != nil {
		panic(err) // a struct of numbers and short strings
	}
	w := &write{kind: recordNote, seq: e.seq, facts: text}
	s.pushLocked(w)
	return w
}

// unlockAndTell unlocks and then hands out the events that came up.
func (s *Spool) unlockAndTell() {
	events := s.events
	s.events = nil
	s.mu.Unlock()
	if s.report != nil {
		for _, e := range events {
			s.report(e)
		}
	}
}

func (s *Spool) flushEvents() {
	s.mu.Lock()
	s.unlockAndTell()
}
