package admission

import "math/bits"

// Permit is the right to use one place of a class. It is a small value: copies
// stand for the same permit, which ends once, whoever ends it first. The zero
// Permit has ended. All methods are safe for concurrent use and allocate
// nothing; on an ended permit they do nothing.
type Permit struct {
	c   *Controller
	idx uint32
	gen uint32
}

// permitRecord is the controller's side of a permit. Guarded by Controller.mu.
type permitRecord struct {
	gen        uint32 // matches the Permit while it is live; wraps after 2^32 uses
	next       uint32 // free list
	live       bool
	class      Class
	counted    uint16 // scopes counted in the caller table, as bits
	over       uint16 // of counted: in the overflow entry
	abandoned  bool
	beyond     bool // granted in dry run outside every limit
	unproven   bool
	paid       bool // one token of the class's bucket was taken
	callerPaid bool // and one of the caller's
	start      int64
	bytes      int64 // taken from the byte bucket and not given back
	group      Key
	keys       [NumScopes]Key
}

// permitSlab holds all records in chunks, so that growing moves none. It never
// shrinks: its size is the most permits ever held at once.
type permitSlab struct {
	chunks [][]permitRecord
	free   uint32 // index+1 of the first free record; 0 = none
	live   int
}

const slabChunk = 256

func (s *permitSlab) at(i uint32) *permitRecord { return &s.chunks[i/slabChunk][i%slabChunk] }

// add returns a fresh record; everything but gen is zero.
func (s *permitSlab) add(c *Controller) (Permit, *permitRecord) {
	if s.free == 0 {
		s.grow()
	}
	i := s.free - 1
	rec := s.at(i)
	s.free = rec.next
	*rec = permitRecord{gen: rec.gen, live: true}
	s.live++
	return Permit{c: c, idx: i, gen: rec.gen}, rec
}

func (s *permitSlab) grow() {
	first := uint32(len(s.chunks) * slabChunk)
	chunk := make([]permitRecord, slabChunk)
	for i := range chunk {
		chunk[i].next = first + uint32(i) + 2
	}
	chunk[slabChunk-1].next = 0
	s.chunks = append(s.chunks, chunk)
	s.free = first + 1
}

func (s *permitSlab) remove(p Permit, rec *permitRecord) {
	rec.live = false
	rec.gen++
	rec.next = s.free
	s.free = p.idx + 1
	s.live--
}

// each calls f for every live record.
func (s *permitSlab) each(f func(*permitRecord)) {
	for _, chunk := range s.chunks {
		for i := range chunk {
			if chunk[i].live {
				f(&chunk[i])
			}
		}
	}
}

// record returns the live record of p, or nil when p has ended.
func (p Permit) record() *permitRecord {
	if rec := p.c.permits.at(p.idx); rec.live && rec.gen == p.gen {
		return rec
	}
	return nil
}

// End gives everything back that the permit holds. The first End counts, later
// ones do nothing.
func (p Permit) End(o Outcome) {
	if p.c == nil {
		return
	}
	p.c.lock(zeroTime)
	defer p.c.mu.Unlock()
	if rec := p.record(); rec != nil {
		p.c.end(p, rec, o)
	}
}

// Valid reports whether the permit has not ended.
func (p Permit) Valid() bool {
	if p.c == nil {
		return false
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.record() != nil
}

// Class returns the class whose place the permit holds, Other once it has ended.
func (p Permit) Class() Class {
	if p.c == nil {
		return Other
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if rec := p.record(); rec != nil {
		return rec.class
	}
	return Other
}

// Abandon marks that the client is gone while the upstream still works. The
// permit goes on counting against every limit, under abandoned instead of
// in_use, until its End. It reports false when the permit has ended or was
// marked before.
func (p Permit) Abandon() bool {
	if p.c == nil {
		return false
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	rec := p.record()
	if rec == nil || rec.abandoned {
		return false
	}
	rec.abandoned = true
	if !rec.beyond {
		p.c.classes[rec.class].abandoned++
	}
	return true
}

// GiveBackBytes returns up to n bytes that were charged and never came, at most
// what this permit was charged in all.
func (p Permit) GiveBackBytes(n int64) {
	if p.c == nil || n <= 0 {
		return
	}
	p.c.lock(zeroTime)
	defer p.c.mu.Unlock()
	if rec := p.record(); rec != nil {
		n = min(n, rec.bytes)
		rec.bytes -= n
		p.c.classes[rec.class].bytes.giveBack(p.c.now, n)
	}
}

// Move exchanges the place for one of class to, obeying that class's pool, caps
// and buckets, or reports false and changes nothing. Nobody can take either
// place in between. The hold of the old class counts as ended with OutcomeMoved.
func (p Permit) Move(to Class) bool {
	if p.c == nil || to >= NumClasses {
		return false
	}
	p.c.lock(zeroTime)
	defer p.c.mu.Unlock()
	rec := p.record()
	if rec == nil || rec.abandoned || rec.class == to {
		return false
	}
	return p.c.move(rec, to)
}

func (c *Controller) move(rec *permitRecord, to Class) bool {
	q := claim{class: to, proven: !rec.unproven, group: rec.group, keys: rec.keys}
	cl := &c.classes[to]
	if cl.queue.ready.n() > 0 || c.check(&q).reason != ReasonNone {
		return false
	}
	old := &c.classes[rec.class]
	c.release(rec, OutcomeMoved)
	c.lookUp(&q, cl)
	*rec = permitRecord{gen: rec.gen, live: true, class: to, unproven: rec.unproven, start: c.now, group: rec.group, keys: rec.keys}
	c.occupy(cl, rec.unproven)
	c.countCaller(&q, cl, rec)
	rec.paid = cl.bucket.take(c.now, 1)
	c.count(to, DecisionAdmitted)
	c.settleQueue(old)
	return true
}

func (c *Controller) end(p Permit, rec *permitRecord, o Outcome) {
	cl := &c.classes[rec.class]
	c.release(rec, o)
	c.permits.remove(p, rec)
	c.settleQueue(cl)
}

// release records the end of a hold and gives back what it took.
func (c *Controller) release(rec *permitRecord, o Outcome) {
	cl := &c.classes[rec.class]
	if o >= NumOutcomes {
		o = OutcomeCompleted
	}
	cl.outcomes[o]++
	cl.observe(c.now - rec.start)
	c.free(rec)
}

// free gives back what rec holds in pools and caps and wakes who is parked
// behind it. The class must be pumped afterwards.
func (c *Controller) free(rec *permitRecord) {
	cl := &c.classes[rec.class]
	if rec.beyond {
		cl.beyond--
		return
	}
	if rec.abandoned {
		cl.abandoned--
	}
	c.vacate(cl, rec.unproven)
	for m := rec.counted; m != 0; m &= m - 1 {
		c.uncount(rec, cl, Scope(bits.TrailingZeros16(m)))
	}
	if cl.queue.n > 0 {
		c.released(rec, cl)
	}
}

func (c *Controller) uncount(rec *permitRecord, cl *classState, s Scope) {
	if rec.over&(1<<s) != 0 {
		cl.overflow[s].count--
		return
	}
	if e := c.callers.find(c.callers.id(cl.class, s, rec.keys[s])); e != nil {
		e.count--
		c.callers.settle(e, c.now)
	}
}
