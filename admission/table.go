package admission

import (
	"math/rand/v2"
	"unsafe"
)

// callerTable remembers callers: per (class, scope, key) how many permits are
// in flight, and per (class, address) how full the caller's bucket is. Entries
// are 24 bytes without pointers, in parts that grow one by one so that no single
// operation moves more than max/128 of them.
//
// An entry may be forgotten only when nothing is in flight and its bucket is
// full again: forgetting then changes nothing. When the table holds max entries
// and the sweep finds none to forget, newcomers use the shared overflow entry of
// their class and scope, all of them together having one caller's budget.
//
// The zero table is not ready; call init. Not safe for concurrent use.
type callerTable struct {
	parts [tableParts]tablePart
	salt  uint64
	n     int
	max   int
	hand  int // part the next sweep starts in
	slot  int // slot within it
}

type tablePart struct {
	slots []callerEntry // power of two, or empty
	n     int
}

// callerEntry is one remembered caller. A zero id marks a free slot.
type callerEntry struct {
	id    uint64
	full  int64 // when the bucket is full again, in controller time
	count int32 // permits in flight
	class Class
}

const (
	tableParts  = 256
	idBit       = 1 << 63 // set in every id, so that small numbers are free for other uses
	sweepStep   = 8       // slots looked at for each new caller
	sweepFull   = 64      // slots looked at when the table is full
	minPartSize = 8
)

func (t *callerTable) init(limit int) { t.salt, t.max = rand.Uint64(), limit }

// id names the entry of one class, scope and key. Different triples share an id
// only as often as 63-bit hashes collide.
func (t *callerTable) id(c Class, s Scope, k Key) uint64 {
	h := uint64(k) ^ t.salt
	h += (uint64(c)<<4 | uint64(s)) * 0x9e3779b97f4a7c15
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	return (h ^ h>>32) | idBit
}

func (t *callerTable) part(id uint64) *tablePart { return &t.parts[id>>55&(tableParts-1)] }

// find returns the entry, or nil. The pointer is good until the next insert,
// drop or sweep.
func (t *callerTable) find(id uint64) *callerEntry {
	p := t.part(id)
	if p.n == 0 {
		return nil
	}
	mask := len(p.slots) - 1
	for i := int(id) & mask; ; i = (i + 1) & mask {
		switch p.slots[i].id {
		case id:
			return &p.slots[i]
		case 0:
			return nil
		}
	}
}

// room returns how many entries may be added, sweeping first: a few slots
// always, more when the table is full. moved says that pointers are stale.
func (t *callerTable) room(now int64) (room int, moved bool) {
	moved = t.sweep(now, sweepStep)
	if t.n >= t.max && t.sweep(now, sweepFull) {
		moved = true
	}
	return max(0, t.max-t.n), moved
}

// insert adds an entry that find did not return. The caller keeps n below max.
func (t *callerTable) insert(id uint64, c Class) *callerEntry {
	p := t.part(id)
	if (p.n+1)*4 > len(p.slots)*3 {
		p.resize(max(minPartSize, len(p.slots)*2))
	}
	t.n++
	p.n++
	e := p.free(id)
	*e = callerEntry{id: id, class: c}
	return e
}

// free returns the slot in which id belongs.
func (p *tablePart) free(id uint64) *callerEntry {
	mask := len(p.slots) - 1
	i := int(id) & mask
	for p.slots[i].id != 0 {
		i = (i + 1) & mask
	}
	return &p.slots[i]
}

func (p *tablePart) resize(size int) {
	old := p.slots
	p.slots = make([]callerEntry, size)
	for _, e := range old {
		if e.id != 0 {
			*p.free(e.id) = e
		}
	}
}

// forgettable reports whether dropping the entry changes no later decision.
func (e *callerEntry) forgettable(now int64) bool { return e.count == 0 && e.full <= now }

// settle drops the entry if it may be forgotten.
func (t *callerTable) settle(e *callerEntry, now int64) {
	if e.forgettable(now) {
		p := t.part(e.id)
		i := int(e.id) & (len(p.slots) - 1)
		for p.slots[i].id != e.id {
			i = (i + 1) & (len(p.slots) - 1)
		}
		t.drop(p, i)
	}
}

// drop removes slot i and closes the gap, so that probing needs no tombstones.
func (t *callerTable) drop(p *tablePart, i int) {
	t.n--
	p.n--
	mask := len(p.slots) - 1
	for j := (i + 1) & mask; p.slots[j].id != 0; j = (j + 1) & mask {
		home := int(p.slots[j].id) & mask
		if (j-home)&mask >= (j-i)&mask {
			p.slots[i] = p.slots[j]
			i = j
		}
	}
	p.slots[i] = callerEntry{}
}

// sweep looks at up to steps slots after the hand, forgets what it may and
// reports whether any entry moved.
func (t *callerTable) sweep(now int64, steps int) (moved bool) {
	if t.n == 0 {
		return false
	}
	for ; steps > 0; steps-- {
		p := &t.parts[t.hand]
		if t.slot >= len(p.slots) {
			moved = p.shrink() || moved
			t.hand, t.slot = (t.hand+1)%tableParts, 0
			continue
		}
		if e := &p.slots[t.slot]; e.id != 0 && e.forgettable(now) {
			t.drop(p, t.slot)
			moved = true
		} else {
			t.slot++
		}
	}
	return moved
}

// shrink gives memory back once a part is nearly empty.
func (p *tablePart) shrink() (moved bool) {
	size := len(p.slots)
	if size <= 8*minPartSize || p.n*8 >= size {
		return false
	}
	p.resize(size / 4)
	return true
}

// bytes is the memory of the slots.
func (t *callerTable) bytes() int {
	n := 0
	for i := range t.parts {
		n += len(t.parts[i].slots)
	}
	return n * int(unsafe.Sizeof(callerEntry{}))
}

// each calls f for every entry. f must not add or drop entries.
func (t *callerTable) each(f func(*callerEntry)) {
	for i := range t.parts {
		for j := range t.parts[i].slots {
			if e := &t.parts[i].slots[j]; e.id != 0 {
				f(e)
			}
		}
	}
}
