package admission

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestACancelledWaiterHandsItsGrantOn lets a grant and the end of the context
// meet in the same instant: the client is gone, the next one goes, and nothing
// was charged.
func TestACancelledWaiterHandsItsGrantOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc := ClassConfig{Max: ptr(1), Wait: &WaitConfig{10, Duration(time.Hour)},
			Bucket: &BucketConfig{3, 0.0001}, CallerBucket: &BucketConfig{1, 0.0001}, Bytes: &BucketConfig{30, 0.0001}}
		cfg := anonymousOnly(cc)
		c := NewController(compile(t, cfg))
		holder := mustAdmit(t, c, from(Anonymous, 1))
		r := from(Anonymous, 2)
		r.Bytes = 30

		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan *Refusal)
		go func() {
			_, refusal := c.Admit(ctx, r)
			got <- refusal
		}()
		synctest.Wait()
		cancel()                     // wakes the waiter …
		holder.End(OutcomeCompleted) // … which may find that it was granted meanwhile
		if refusal := <-got; refusal == nil || refusal.Reason != ReasonGone {
			t.Fatalf("a cancelled waiter got %+v", refusal)
		}
		s := c.Snapshot()
		if s.Decisions[Anonymous][DecisionGone] != 1 || s.Decisions[Anonymous][DecisionWaited] != 0 {
			t.Errorf("decisions %v; want one gone", s.Decisions[Anonymous])
		}
		mustAdmit(t, c, r).End(OutcomeCompleted) // needs the caller's only token and all bytes
		mustBeIdle(t, c)
	})
}

// TestAGrantToAGoneClientGoesToTheNext forces the order grant, then cancel.
func TestAGrantToAGoneClientGoesToTheNext(t *testing.T) {
	c, _ := standing(t, anonymousOnly(ClassConfig{Max: ptr(1), Wait: &WaitConfig{10, Duration(time.Hour)},
		CallerBucket: &BucketConfig{1, 0.001}}))
	holder := mustAdmit(t, c, from(Anonymous, 1))
	a := mustWait(t, c, from(Anonymous, 2))
	b := mustWait(t, c, from(Anonymous, 3))
	holder.End(OutcomeCompleted)
	if a.state != granted || b.state != waiting {
		t.Fatal("the first waiter was not granted")
	}
	if _, refusal := c.collect(a, true); refusal == nil || refusal.Reason != ReasonGone {
		t.Fatalf("a client that left got %+v", refusal)
	}
	p, refusal := c.collect(b, false)
	if refusal != nil {
		t.Fatalf("the next in line got %s", refusal.Reason)
	}
	s := c.Snapshot()
	if h := s.Holds[Anonymous]; h.Count != 1 {
		t.Errorf("%d holds; a grant nobody took is none", h.Count)
	}
	p.End(OutcomeCompleted)
	mustAdmit(t, c, from(Anonymous, 2)).End(OutcomeCompleted) // its token came back
	mustBeIdle(t, c)
}

// TestARandomCrowdLeavesNothingBehind runs many clients through the real
// waiting path in fake time: some give up, some are slow, limits change.
func TestARandomCrowdLeavesNothingBehind(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { crowd(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func crowd(t *testing.T, r *rand.Rand) {
	c := NewController(compile(t, Config{Total: 6}))
	var wg sync.WaitGroup
	for range 400 {
		req := from(Class(r.IntN(int(NumClasses))), Key(r.IntN(2000)))
		req.Keys[ByCredential] = Key(r.IntN(5))
		req.Continuation = r.IntN(5) == 0
		hold := time.Duration(r.IntN(4000)) * time.Millisecond
		patience := time.Duration(r.IntN(20000)) * time.Millisecond
		start := time.Duration(r.IntN(20000)) * time.Millisecond
		wg.Go(func() {
			time.Sleep(start)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			begun := time.Now()
			p, refusal := c.Admit(ctx, req)
			waited := time.Since(begun)
			if limit := c.Policy().Classes[req.Class].WaitMax; waited > max(limit, patience) {
				t.Errorf("%s waited %v; limit %v, patience %v", req.Class, waited, limit, patience)
			}
			if refusal == nil {
				time.Sleep(hold)
			}
			p.End(OutcomeCompleted)
		})
	}
	for range 10 {
		time.Sleep(3 * time.Second)
		c.Apply(compile(t, Config{Total: 5 + r.IntN(10)}))
	}
	wg.Wait()
	mustBeIdle(t, c)
	total := uint64(0)
	for _, d := range c.Snapshot().Decisions {
		for _, n := range d {
			total += n
		}
	}
	if total != 400 {
		t.Errorf("%d decisions for 400 requests", total)
	}
}

// TestOneCallerCannotDelayOthers: 1,000 requests of one address wait; somebody
// else gets the next place that comes free.
func TestOneCallerCannotDelayOthers(t *testing.T) {
	c, _ := standing(t, Config{Classes: map[string]*ClassConfig{"anonymous": {
		Max: ptr(2), CallerMax: ptr(0), Wait: &WaitConfig{2000, Duration(time.Hour)}}}})
	a, b := mustAdmit(t, c, from(Anonymous, 1)), mustAdmit(t, c, from(Anonymous, 1))
	for range 1000 {
		mustWait(t, c, from(Anonymous, 1))
	}
	polite := mustWait(t, c, from(Anonymous, 0x900))
	a.End(OutcomeCompleted)
	b.End(OutcomeCompleted)
	if polite.state != granted {
		t.Error("two places came free and a thousand requests of one address were in the way")
	}
}

// TestReleaseStaysCheapWithManyParked counts the work of a release, not its
// time: of 10,000 waiters parked behind two caps only one is woken.
func TestReleaseStaysCheapWithManyParked(t *testing.T) {
	c, _ := standing(t, Config{Classes: map[string]*ClassConfig{"anonymous": {
		Max: ptr(50), CallerMax: ptr(2), Wait: &WaitConfig{20_000, Duration(time.Hour)}}}})
	first := mustAdmit(t, c, from(Anonymous, 1))
	mustAdmit(t, c, from(Anonymous, 1))
	var all []*waiter
	for range 10_000 {
		all = append(all, mustWait(t, c, from(Anonymous, 1)))
	}
	first.End(OutcomeCompleted)
	moved := 0
	for _, w := range all {
		if w.state != waiting || w.parked == nil {
			moved++
		}
	}
	if moved != 1 || all[0].state != granted {
		t.Errorf("%d of 10,000 parked waiters moved for one permit", moved)
	}
}
