package identity

// table is a map of at most max entries, ordered by the time they were last
// put. A put beyond max drops the oldest entry. Not safe for concurrent use.
//
// Entries live in chunks, so that growing never copies them, and link to each
// other by index, so that the garbage collector has little to scan. A dropped
// entry's memory is used again; it is not given back.
type table[K comparable, V any] struct {
	max    int
	index  map[K]int32
	chunks [][]entry[K, V]
	taken  int32 // indices ever handed out
	free   int32 // first of the list of free indices, through older
	newest int32
	oldest int32
	// dropped, if set, is called for an entry that put displaces or sweep
	// expires, just before it goes.
	dropped func(i int32, expired bool)
}

// none is the index of no entry. Index 0 is never handed out.
const none int32 = 0

const chunkSize = 256

type entry[K comparable, V any] struct {
	key          K
	value        V
	at           int64 // when it was last put, on the store's clock
	newer, older int32
}

func newTable[K comparable, V any](max int) table[K, V] {
	return table[K, V]{max: max, index: make(map[K]int32)}
}

func (t *table[K, V]) len() int { return len(t.index) }

// entry returns the entry at i, which stays valid until it is removed.
func (t *table[K, V]) entry(i int32) *entry[K, V] {
	return &t.chunks[(i-1)/chunkSize][(i-1)%chunkSize]
}

// find returns the index of k, or none. It does not change the order.
func (t *table[K, V]) find(k K) int32 { return t.index[k] }

// live returns the value of k if it was put less than kept before now.
func (t *table[K, V]) live(k K, now, kept int64) (*V, bool) {
	i := t.find(k)
	if i == none {
		return nil, false
	}
	e := t.entry(i)
	return &e.value, now-e.at < kept
}

// put makes k the newest entry and returns its index. A new entry's value is
// zero, a present one keeps its value.
func (t *table[K, V]) put(k K, at int64) int32 {
	i := t.find(k)
	if i != none {
		t.unlink(i)
	} else {
		if t.len() >= t.max {
			t.drop(t.oldest, false)
		}
		i = t.take()
		t.entry(i).key = k
		t.index[k] = i
	}
	t.entry(i).at = at
	t.link(i)
	return i
}

// sweep removes at most two of the oldest entries put kept or longer ago. As
// every put sweeps, expired entries do not pile up.
func (t *table[K, V]) sweep(now, kept int64) {
	for range 2 {
		if t.oldest == none || now-t.entry(t.oldest).at < kept {
			return
		}
		t.drop(t.oldest, true)
	}
}

func (t *table[K, V]) drop(i int32, expired bool) {
	if t.dropped != nil {
		t.dropped(i, expired)
	}
	t.remove(i)
}

// remove takes the entry out and wipes it.
func (t *table[K, V]) remove(i int32) {
	t.unlink(i)
	e := t.entry(i)
	delete(t.index, e.key)
	*e = entry[K, V]{older: t.free}
	t.free = i
}

func (t *table[K, V]) take() int32 {
	if i := t.free; i != none {
		t.free = t.entry(i).older
		t.entry(i).older = none
		return i
	}
	if int(t.taken)%chunkSize == 0 {
		t.chunks = append(t.chunks, make([]entry[K, V], min(chunkSize, t.max-int(t.taken))))
	}
	t.taken++
	return t.taken
}

func (t *table[K, V]) link(i int32) {
	e := t.entry(i)
	e.newer, e.older = none, t.newest
	if t.newest != none {
		t.entry(t.newest).newer = i
	} else {
		t.oldest = i
	}
	t.newest = i
}

func (t *table[K, V]) unlink(i int32) {
	e := t.entry(i)
	if e.newer != none {
		t.entry(e.newer).older = e.older
	} else {
		t.newest = e.older
	}
	if e.older != none {
		t.entry(e.older).newer = e.newer
	} else {
		t.oldest = e.newer
	}
}
