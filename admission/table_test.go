package admission

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
	"unsafe"
)

func TestAnEntryIsForgottenOnlyWhenThatChangesNothing(t *testing.T) {
	c, clock := standing(t, anonymousOnly(ClassConfig{CallerMax: ptr(2), CallerBucket: &BucketConfig{Burst: 3, PerSecond: 1}}))
	p := mustAdmit(t, c, from(Anonymous, 1))
	clock.advance(time.Hour)
	if n := c.Snapshot().Callers.Tracked; n != 1 {
		t.Fatalf("%d callers; one still holds a permit", n)
	}
	p.End(OutcomeCompleted)
	if n := c.Snapshot().Callers.Tracked; n != 0 {
		t.Fatalf("%d callers; its bucket is full and it holds nothing", n)
	}
	mustAdmit(t, c, from(Anonymous, 1)).End(OutcomeCompleted)
	if n := c.Snapshot().Callers.Tracked; n != 1 {
		t.Fatalf("%d callers; its bucket is not full", n)
	}
	clock.advance(time.Second)
	mustAdmit(t, c, from(Anonymous, 2)).End(OutcomeCompleted)
	const newcomers = 20 * tableParts
	for i := range Key(newcomers) { // a few slots are swept for each
		clock.advance(time.Second)
		mustAdmit(t, c, from(Anonymous, i+100)).End(OutcomeCompleted)
	}
	if n := c.Snapshot().Callers.Tracked; n > newcomers/10 {
		t.Errorf("%d of %d callers tracked, all but one with a full bucket", n, newcomers)
	}
}

// TestManyCallersShareOneOverflowBudget fills the table with callers that may
// not be forgotten and then comes with many more: together they get one
// caller's cap and bucket, and those in the table keep theirs.
func TestManyCallersShareOneOverflowBudget(t *testing.T) {
	cfg := anonymousOnly(ClassConfig{CallerMax: ptr(2), CallerBucket: &BucketConfig{Burst: 3, PerSecond: 0.01}})
	cfg.CallersMax = 100
	c, clock := standing(t, cfg)
	for i := range Key(100) {
		mustAdmit(t, c, from(Anonymous, i+1)).End(OutcomeCompleted)
	}
	first := mustAdmit(t, c, from(Anonymous, 1001))
	second := mustAdmit(t, c, from(Anonymous, 1002))
	if r := mustRefuse(t, c, from(Anonymous, 1003), ReasonOverflow); !r.Shared {
		t.Error("a newcomer that shares the overflow budget was blamed")
	}
	first.End(OutcomeCompleted)
	second.End(OutcomeCompleted)
	mustAdmit(t, c, from(Anonymous, 1003)).End(OutcomeCompleted)
	mustRefuse(t, c, from(Anonymous, 1004), ReasonOverflow) // three tokens are gone
	if n := c.Snapshot().Callers.Tracked; n != 100 {
		t.Errorf("%d callers tracked; the bound is 100", n)
	}
	mustAdmit(t, c, from(Anonymous, 7)).End(OutcomeCompleted)
	clock.advance(400 * time.Second)
	mustAdmit(t, c, from(Anonymous, 1004)).End(OutcomeCompleted)
	mustBeIdle(t, c)
}

// TestTableAgainstMap runs random operations on the table and a map.
func TestTableAgainstMap(t *testing.T) {
	var table callerTable
	table.init(1 << 20)
	want := make(map[uint64]int32)
	r := rand.New(rand.NewPCG(7, 7))
	for range 200_000 {
		id := table.id(Class(r.IntN(3)), Scope(r.IntN(2)), Key(r.IntN(3000)))
		e := table.find(id)
		if (e != nil) != (want[id] > 0) || e != nil && e.count != want[id] {
			t.Fatalf("entry %+v; want count %d", e, want[id])
		}
		switch {
		case r.IntN(3) > 0:
			if e == nil {
				e = table.insert(id, Push)
			}
			e.count++
			want[id]++
		case e != nil:
			e.count--
			if want[id]--; want[id] == 0 {
				delete(want, id)
			}
			table.settle(e, 0)
		default:
			table.sweep(0, sweepFull)
		}
	}
	if table.n != len(want) {
		t.Errorf("%d entries; want %d", table.n, len(want))
	}
	n := 0
	table.each(func(e *callerEntry) {
		n++
		if want[e.id] != e.count {
			t.Errorf("count %d; want %d", e.count, want[e.id])
		}
		e.count = 0
	})
	if n != len(want) {
		t.Errorf("each saw %d entries; want %d", n, len(want))
	}
	for range 1 << 20 {
		if table.n == 0 {
			break
		}
		table.sweep(0, sweepFull)
	}
	for range 4 * tableParts * 4 {
		table.sweep(0, 1)
	}
	if table.n != 0 {
		t.Errorf("%d entries left after everybody may be forgotten", table.n)
	}
}

func TestMemoryIsGivenBack(t *testing.T) {
	var table callerTable
	table.init(1 << 20)
	for i := range Key(100_000) {
		table.insert(table.id(Push, ByAddress, i), Push).full = 5
	}
	peak := table.bytes()
	last := table.insert(table.id(Push, ByCredential, 1), Push)
	last.full = 1 << 60
	for range 20_000 {
		table.sweep(10, sweepFull)
	}
	if now := table.bytes(); table.n != 1 || now > peak/10 {
		t.Errorf("%d entries in %d bytes, after %d at the peak", table.n, now, peak)
	}
}

// TestBytesPerIdleCaller: a remembered caller costs at most 64 bytes at a
// million of them, everything the controller keeps included.
func TestBytesPerIdleCaller(t *testing.T) {
	const callers = 1_000_000
	c, _ := standing(t, anonymousOnly(ClassConfig{CallerBucket: &BucketConfig{Burst: 10, PerSecond: 0.01}}))
	p := mustAdmit(t, c, from(Anonymous, 1<<40))
	p.End(OutcomeCompleted)
	before := heapBytes()
	for i := range Key(callers - 1) { // what a request that has ended leaves behind
		id := c.callers.id(Anonymous, ByAddress, i+1)
		c.callers.insert(id, Anonymous).full = int64(time.Hour)
	}
	per := float64(heapBytes()-before) / callers
	if n := c.Snapshot().Callers.Tracked; n != callers {
		t.Fatalf("%d callers tracked; want %d", n, callers)
	}
	mustBeIdle(t, c)
	t.Logf("%.1f bytes per idle caller at %d (an entry is %d)", per, callers, unsafe.Sizeof(callerEntry{}))
	if per > 64 {
		t.Errorf("%.1f bytes per idle caller; want at most 64", per)
	}
}

func heapBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
