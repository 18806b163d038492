package spool

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// ledger is what a sender knows about its deliveries.
type ledger struct {
	mu      sync.Mutex
	tried   map[string]bool   // by delivery id
	acked   map[string]string // delivery id → the spool's id
	seen    map[string]bool   // found after a start although not acknowledged
	gone    map[string]bool   // settled, durably
	late    map[string]bool   // acknowledged by a later attempt: order says nothing
	refused map[string]bool   // refused and not sent again: must not be found
	going   map[string]bool   // about to be settled
}

var powerCuts = flag.Uint64("powercuts", 60, "seeds of TestPowerCut")

var errNoSpace error = syscall.ENOSPC

func newLedger() *ledger {
	return &ledger{tried: map[string]bool{}, acked: map[string]string{}, gone: map[string]bool{}, refused: map[string]bool{}, late: map[string]bool{}, going: map[string]bool{}}
}

// keep offers one delivery.
func (l *ledger) keep(s *Spool, d *Delivery) error {
	l.mu.Lock()
	l.tried[d.ID] = true
	l.mu.Unlock()
	id, err := s.Keep(context.Background(), "/hook", d)
	if err == nil {
		l.mu.Lock()
		l.acked[d.ID] = id
		l.mu.Unlock()
	}
	return err
}

// drop settles one acknowledged delivery.
func (l *ledger) drop(s *Spool, delivery string) {
	l.mu.Lock()
	id, ok := l.acked[delivery]
	if ok {
		l.going[delivery] = true
	}
	l.mu.Unlock()
	if ok && s.Drop(context.Background(), id) == nil {
		l.mu.Lock()
		l.gone[delivery] = true
		l.mu.Unlock()
	}
}

// check compares what a spool holds with what the sender knows.
func (l *ledger) check(s *Spool) error {
	last := map[string]uint64{}
	have := map[string]bool{}
	for _, it := range s.List(Filter{}) {
		if have[it.Delivery] {
			return fmt.Errorf("%s is there twice", it.Delivery)
		}
		have[it.Delivery] = true
		if !l.tried[it.Delivery] {
			return fmt.Errorf("%s was never sent", it.Delivery)
		}
		if l.refused[it.Delivery] {
			return fmt.Errorf("%s was refused", it.Delivery)
		}
		if l.gone[it.Delivery] {
			return fmt.Errorf("%s was dropped", it.Delivery)
		}
		id, acked := l.acked[it.Delivery]
		if acked && id == "" {
			l.acked[it.Delivery] = it.ID
		}
		if it.Dead != "" && acked {
			return fmt.Errorf("%s was acknowledged and is %s", it.Delivery, it.Dead)
		}
		d, err := s.Show(it.ID, true)
		if errors.Is(err, ErrCorrupt) && !acked {
			continue // torn by the power cut, not promised to anybody, told when used
		}
		if err != nil && it.Dead == "" {
			return fmt.Errorf("%s: %w", it.Delivery, err)
		}
		var n uint64
		if _, err := fmt.Sscanf(it.Delivery, it.Repository+"-%d", &n); err != nil {
			return err
		}
		if it.Dead == "" {
			if want := testBody(it.Repository, int(n)); string(d.Body) != want {
				return fmt.Errorf("%s holds other bytes", it.Delivery)
			}
		}
		if l.late[it.Delivery] {
			continue
		}
		if n < last[it.Repository] {
			return fmt.Errorf("%s out of order", it.Delivery)
		}
		last[it.Repository] = n
	}
	for id := range l.acked {
		if !have[id] && !l.going[id] {
			return fmt.Errorf("%s was acknowledged and is lost", id)
		}
	}
	return nil
}

func testBody(repo string, n int) string {
	size := 100 + n*97%1500
	if n%23 == 22 {
		size = joinBody + 1000 // written by a second call
	}
	b := make([]byte, size)
	r := rand.NewPCG(uint64(n), uint64(len(repo)))
	for i := range b {
		b[i] = byte(r.Uint64())
	}
	return repo + string(b)
}

func memDelivery(repo string, n int) *Delivery {
	d := testDelivery(repo, n)
	d.Body = []byte(testBody(repo, n))
	return d
}

func memConfig(d *memDisk) Config {
	return Config{Dir: "/spool", Disk: d, SegmentBytes: 16 << 10, Rand: func() float64 { return 0.5 }}
}

// again offers what was not acknowledged once more, as a sender might.
func (l *ledger) again(s *Spool, r *rand.Rand) {
	for _, id := range slices.Sorted(maps.Keys(l.tried)) {
		if _, ok := l.acked[id]; ok || l.refused[id] || r.IntN(2) == 0 {
			continue
		}
		repo, n, _ := strings.Cut(id, "-")
		if i, err := strconv.Atoi(n); err == nil {
			l.late[id] = true
			_ = l.keep(s, memDelivery(repo, i)) // it counts when it is acknowledged
		}
	}
}

// run makes n steps from the writers' numbers and stops at the first error
// when strict is set.
func (l *ledger) run(s *Spool, r *rand.Rand, base, n int) {
	var wg sync.WaitGroup
	for w := range 3 {
		seed := r.Uint64()
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			repo := fmt.Sprintf("repo%d", w)
			for i := range n {
				if l.keep(s, memDelivery(repo, base+i)) == nil && r.IntN(3) > 0 {
					l.drop(s, fmt.Sprintf("%s-%d", repo, base+r.IntN(i+1)))
				}
			}
		})
	}
	wg.Wait()
}

// TestPowerCut cuts the power or kills the process at random operations, again
// and again on the same disk, while its sender repeats what was refused: what was acknowledged is there afterwards, in order and
// unchanged, what was dropped is not, and nothing else is.
func TestPowerCut(t *testing.T) {
	for seed := range *powerCuts {
		r := rand.New(rand.NewPCG(seed, 7))
		disk, l := newMemDisk(), newLedger()
		for life := range 5 {
			disk.cutAt = 1 + r.IntN(400)
			s, err := Open(memConfig(disk))
			if err == nil {
				if err := l.check(s); err != nil && !errors.Is(err, errPower) {
					t.Fatalf("seed %d life %d: %v", seed, life, err)
				}
				l.again(s, r)
				l.run(s, r, life*100, 20)
				_ = s.Close()
			} else if !errors.Is(err, errPower) {
				t.Fatalf("seed %d life %d: %v", seed, life, err)
			}
			if r.IntN(3) == 0 {
				disk = disk.killed()
			} else {
				disk = disk.crash(r)
			}
		}
		s, err := Open(memConfig(disk))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.check(s); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		_ = s.Close()
	}
}

// TestEveryOperationFails fails each disk operation of a fixed run in turn,
// in each way: a refused delivery gets a typed error, an acknowledged one is
// there after a power cut or a clean end, and the spool works again at once.
func TestEveryOperationFails(t *testing.T) {
	for _, fault := range []error{syscall.ENOSPC, syscall.EIO, syscall.EROFS} {
		for at := 1; ; at++ {
			disk, l := newMemDisk(), newLedger()
			disk.failAt, disk.fault = at, fault
			used := runWithFault(t, disk, l, at, true)
			disk, l = newMemDisk(), newLedger()
			disk.failAt, disk.fault = at, fault
			runWithFault(t, disk, l, at, false)
			if used < at {
				if at < 60 {
					t.Fatalf("only %d operations: the run proves little", used)
				}
				break
			}
		}
	}
}

// runWithFault runs a script on a disk that fails once, ends it by a power cut
// or cleanly, and checks it; it returns how many operations the script made.
func runWithFault(t *testing.T, disk *memDisk, l *ledger, at int, cut bool) int {
	t.Helper()
	fail := func(err error) {
		t.Fatalf("operation %d (%s) fails with %v: %v", at, disk.log[at-1], disk.fault, err)
	}
	c := memConfig(disk)
	c.SegmentBytes = 3 << 10 // files come and go
	s, err := Open(c)
	if err != nil {
		if !is[*DiskError](err) {
			fail(err)
		}
		if s, err = Open(c); err != nil {
			fail(err)
		}
	}
	for i := range 20 {
		repo := fmt.Sprintf("repo%d", i%3)
		if err := l.keep(s, memDelivery(repo, i)); err != nil {
			if !is[*DiskError](err) {
				fail(err)
			}
			if i%2 == 0 { // its sender does not try again: it must not come back either
				l.refused[fmt.Sprintf("%s-%d", repo, i)] = !cut
				continue
			}
			if err := l.keep(s, memDelivery(repo, i)); err != nil {
				fail(fmt.Errorf("and then: %w", err))
			}
		}
		if i%4 != 3 {
			l.drop(s, fmt.Sprintf("%s-%d", repo, i))
		}
	}
	used := disk.ops
	if cut {
		disk = disk.crash(rand.New(rand.NewPCG(uint64(at), 3)))
	}
	_ = s.Close()
	c.Disk = disk
	if s, err = Open(c); err != nil {
		fail(err)
	}
	defer s.Close()
	if err := l.check(s); err != nil {
		fail(err)
	}
	return used
}

// TestRemovalsInOrder: when many files leave at once and the power fails,
// none is found again without the one that says its deliveries are done.
func TestRemovalsInOrder(t *testing.T) {
	for seed := range uint64(30) {
		disk, l := newMemDisk(), newLedger()
		c := memConfig(disk)
		c.SegmentBytes = 2 << 10
		s := open(t, c)
		for i := range 40 {
			if err := l.keep(s, memDelivery("a", i)); err != nil {
				t.Fatal(err)
			}
			if i > 1 {
				l.drop(s, fmt.Sprintf("a-%d", i-1)) // noted in a later file than its delivery
			}
		}
		l.drop(s, "a-39")
		l.drop(s, "a-0")             // it held all files
		for s.Snapshot().Files > 1 { // the writer is at it
			runtime.Gosched()
		}
		disk = disk.crash(rand.New(rand.NewPCG(seed, 5)))
		_ = s.Close()
		c.Disk = disk
		s = open(t, c)
		if err := l.check(s); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		_ = s.Close()
	}
}
