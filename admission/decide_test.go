package admission

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// anonymousOnly is a configuration in which only the given limits of anonymous
// matter.
func anonymousOnly(cc ClassConfig) Config {
	if cc.CallerMax == nil {
		cc.CallerMax = ptr(0)
	}
	return Config{WaitOff: true, Classes: map[string]*ClassConfig{"anonymous": &cc}}
}

func TestACallerCannotHoldAClass(t *testing.T) {
	cfg := anonymousOnly(ClassConfig{CallerMax: ptr(3), RepoMax: ptr(5), CustomMax: []CustomMax{{Max: 2, By: "{x}"}}})
	for _, tc := range []struct {
		scope Scope
		limit int
	}{{ByAddress, 3}, {ByRepository, 5}, {ByCustom0, 2}} {
		t.Run(fmt.Sprint(tc.scope), func(t *testing.T) {
			c, _ := standing(t, cfg)
			request := func(i int, k Key) *Request {
				r := &Request{Class: Anonymous}
				for s := range NumScopes {
					r.Keys[s] = Key(1000 + 10*i + int(s))
				}
				r.Keys[tc.scope] = k
				return r
			}
			var held []Permit
			for i := range tc.limit {
				held = append(held, mustAdmit(t, c, request(i, 7)))
			}
			if r := mustRefuse(t, c, request(50, 7), tc.scope.full()); r.Shared != (tc.scope == ByRepository) {
				t.Error("a caller at its own cap was told that others are to blame, or of a repository that it alone is")
			}
			held = append(held, mustAdmit(t, c, request(51, 8)))
			held[0].End(OutcomeCompleted)
			held = append(held, mustAdmit(t, c, request(52, 7)))
			for _, p := range held {
				p.End(OutcomeCompleted)
			}
			mustBeIdle(t, c)
		})
	}
}

func TestCapsCountPerClass(t *testing.T) {
	c, _ := standing(t, Config{WaitOff: true})
	for range 4 {
		mustAdmit(t, c, from(Anonymous, 9))
	}
	mustRefuse(t, c, from(Anonymous, 9), ReasonCallerCap)
	mustAdmit(t, c, from(Discovery, 9))
}

func TestAnAbsentKeyHasNoCap(t *testing.T) {
	c, _ := standing(t, anonymousOnly(ClassConfig{CallerMax: ptr(1), CallerBucket: &BucketConfig{1, 1}}))
	for range 10 {
		mustAdmit(t, c, &Request{Class: Anonymous})
	}
}

func TestPoolsOutsideTheTotalDoNotTouchIt(t *testing.T) {
	c, _ := standing(t, Config{Total: 5, WaitOff: true})
	for class := LFS; class < NumClasses; class++ {
		mustAdmit(t, c, from(class, Key(class)<<8))
	}
	if s := c.Snapshot(); s.InUse != 0 {
		t.Errorf("git in use %d; want 0", s.InUse)
	}
	for i := range 3 {
		mustAdmit(t, c, from(Webhook, Key(i)<<8))
	}
	r := mustRefuse(t, c, from(Webhook, 0x999), ReasonPoolFull)
	if !r.Shared {
		t.Error("a full webhook pool is the caller's fault?")
	}
}

func TestOtherIsNeverLimitedUnlessCapped(t *testing.T) {
	c, _ := standing(t, Config{})
	for range 5000 {
		mustAdmit(t, c, from(Other, 1))
	}
	capped, _ := standing(t, Config{Classes: map[string]*ClassConfig{"other": {Max: ptr(2)}}})
	mustAdmit(t, capped, from(Other, 1))
	mustAdmit(t, capped, from(Other, 1))
	mustRefuse(t, capped, from(Other, 1), ReasonPoolFull)
}

// TestARefusalTakesNothing lets each limit refuse in turn and compares every
// other level before and after, buckets included.
func TestARefusalTakesNothing(t *testing.T) {
	cfg := func(cc ClassConfig) Config { return anonymousOnly(cc) }
	wide := BucketConfig{Burst: 100, PerSecond: 1}
	for _, tc := range []struct {
		reason Reason
		cc     ClassConfig
	}{
		{ReasonPoolFull, ClassConfig{Max: ptr(1), Bucket: &wide, Bytes: &wide, CallerBucket: &wide}},
		{ReasonCallerCap, ClassConfig{CallerMax: ptr(1), Bucket: &wide, Bytes: &wide, CallerBucket: &wide}},
		{ReasonClassBucket, ClassConfig{Bucket: &BucketConfig{1, 1}, Bytes: &wide, CallerBucket: &wide}},
		{ReasonByteBucket, ClassConfig{Bucket: &wide, Bytes: &BucketConfig{10, 1}, CallerBucket: &wide}},
		{ReasonCallerBucket, ClassConfig{Bucket: &wide, Bytes: &wide, CallerBucket: &BucketConfig{1, 1}}},
	} {
		t.Run(tc.reason.String(), func(t *testing.T) {
			c, clock := standing(t, cfg(tc.cc))
			r := from(Anonymous, 5)
			r.Bytes = 10
			mustAdmit(t, c, r)
			clock.advance(123456789 * time.Nanosecond)
			before := levels(c)
			for range 3 {
				mustRefuse(t, c, r, tc.reason)
			}
			if after := levels(c); after != before {
				t.Errorf("a refusal changed %v to %v", before, after)
			}
		})
	}
}

// levels renders everything a refused request could have changed.
func levels(c *Controller) string {
	c.lock(zeroTime)
	defer c.mu.Unlock()
	cl := &c.classes[Anonymous]
	t := c.base.Add(time.Duration(c.now))
	s := fmt.Sprint(cl.held, c.git, cl.unproven, c.callers.n, c.permits.live)
	for _, b := range []*bucket{&cl.bucket, &cl.bytes} {
		if b.lim != nil {
			s += fmt.Sprint(" ", b.lim.TokensAt(t))
		}
	}
	c.callers.each(func(e *callerEntry) { s += fmt.Sprint(" ", e.count, e.full) })
	return s
}

func TestAChargeAboveTheBurstIsCapped(t *testing.T) {
	c, clock := standing(t, anonymousOnly(ClassConfig{Bytes: &BucketConfig{Burst: 100, PerSecond: 10}}))
	r := from(Anonymous, 5)
	r.Bytes = 1 << 40
	mustAdmit(t, c, r)
	refusal := mustRefuse(t, c, r, ReasonByteBucket)
	if refusal.RetryAfter != 10*time.Second {
		t.Errorf("retry after %v; want 10s, when all 100 are back", refusal.RetryAfter)
	}
	clock.advance(refusal.RetryAfter)
	mustAdmit(t, c, r)
}

func TestBytesThatNeverCameAreGivenBack(t *testing.T) {
	c, _ := standing(t, anonymousOnly(ClassConfig{Bytes: &BucketConfig{Burst: 100, PerSecond: 0.001}}))
	r := from(Anonymous, 5)
	r.Bytes = 80
	p := mustAdmit(t, c, r)
	mustRefuse(t, c, r, ReasonByteBucket)
	p.GiveBackBytes(59)
	mustRefuse(t, c, r, ReasonByteBucket)
	p.GiveBackBytes(1)
	second := mustAdmit(t, c, r)
	p.GiveBackBytes(1000) // only the 20 that are left of this permit's charge
	r.Bytes = 21
	mustRefuse(t, c, r, ReasonByteBucket)
	r.Bytes = 20
	mustAdmit(t, c, r)
	second.End(OutcomeCompleted)
	second.GiveBackBytes(1000)
	r.Bytes = 1
	mustRefuse(t, c, r, ReasonByteBucket)
}

// TestANegativeChargeIsExact pins what giveBack relies on in x/time/rate.
func TestANegativeChargeIsExact(t *testing.T) {
	base := time.Now()
	b := bucket{base: base}
	b.apply(BucketPolicy{Burst: 10, PerSecond: 0.001}, 0)
	b.take(0, 7)
	b.giveBack(0, 4)
	if got := b.lim.TokensAt(base); got != 7 {
		t.Errorf("level %v after taking 7 of 10 and giving 4 back; want 7", got)
	}
	b.giveBack(0, 100)
	if got := b.lim.TokensAt(base); got != 10 {
		t.Errorf("level %v after giving too much back; want the burst, 10", got)
	}
	b.take(0, 10)
	if d := b.shortage(0, 1); d == 0 {
		t.Error("a bucket held more than its burst")
	}
}

func TestAContinuationIsNotChargedAgain(t *testing.T) {
	one := &BucketConfig{Burst: 1, PerSecond: 0.001}
	c, _ := standing(t, anonymousOnly(ClassConfig{CallerMax: ptr(3), Bucket: one, CallerBucket: one, Bytes: one}))
	r := from(Anonymous, 5)
	r.Bytes = 1
	mustAdmit(t, c, r)
	mustRefuse(t, c, r, ReasonCallerBucket)
	r.Continuation = true
	mustAdmit(t, c, r)
	mustAdmit(t, c, r)
	mustRefuse(t, c, r, ReasonCallerCap)
}

func TestHalfOfLFSNeedsAProof(t *testing.T) {
	c, _ := standing(t, Config{WaitOff: true})
	var held []Permit
	for i := range 16 {
		held = append(held, mustAdmit(t, c, from(LFS, Key(i)<<8|1)))
	}
	if r := mustRefuse(t, c, from(LFS, 0x9901), ReasonUnprovenFull); !r.Shared {
		t.Error("strangers that fill their part are not this caller's fault")
	}
	for i := range 16 {
		r := from(LFS, Key(i)<<8|0x8001)
		r.Proven = true
		held = append(held, mustAdmit(t, c, r))
	}
	r := from(LFS, 0xaa01)
	r.Proven = true
	mustRefuse(t, c, r, ReasonPoolFull)
	held[0].End(OutcomeCompleted)
	held[0] = mustAdmit(t, c, from(LFS, 0x9901))
	for _, p := range held {
		p.End(OutcomeCompleted)
	}
	mustBeIdle(t, c)
}

func TestDryRunRefusesNothing(t *testing.T) {
	cfg := Config{Total: 5, Classes: map[string]*ClassConfig{"anonymous": {DryRun: true, CallerMax: ptr(1)}}}
	c, _ := standing(t, cfg)
	first := mustAdmit(t, c, from(Anonymous, 1))
	p, r := c.TryAdmit(from(Anonymous, 1))
	if !p.Valid() || r == nil || !r.Would || r.Reason != ReasonCallerCap {
		t.Fatalf("permit %v, refusal %+v; want a permit and what would have refused it", p.Valid(), r)
	}
	q, r := c.Admit(t.Context(), from(Anonymous, 2))
	if !q.Valid() || r != nil {
		t.Fatalf("permit %v, refusal %+v; want a permit for what would have waited", q.Valid(), r)
	}
	s := c.Snapshot()
	if got := s.Classes[Anonymous]; got.InUse != 1 || got.Beyond != 2 || s.InUse != 1 {
		t.Errorf("%+v; want 1 in use and 2 beyond", got)
	}
	d := s.Decisions[Anonymous]
	if d[DecisionAdmitted] != 1 || d[DecisionWouldRefuse] != 1 || d[DecisionWouldWait] != 1 {
		t.Errorf("decisions %v", d)
	}
	mustAdmit(t, c, from(Push, 3)).End(OutcomeCompleted)

	cfg.Classes["anonymous"].DryRun = false
	c.Apply(compile(t, cfg))
	if got := c.Snapshot().Classes[Anonymous]; got.InUse != 3 || got.Beyond != 0 {
		t.Errorf("after the dry run %+v; want all 3 in use", got)
	}
	for _, p := range []Permit{first, p, q} {
		p.End(OutcomeCompleted)
	}
	mustBeIdle(t, c)
}

func TestDecisionsAddUp(t *testing.T) {
	c, _ := standing(t, Config{Total: 5, WaitOff: true})
	mustAdmit(t, c, from(Anonymous, 1)).End(OutcomeUpstreamFailed)
	mustAdmit(t, c, from(Anonymous, 1))
	mustRefuse(t, c, from(Anonymous, 2), ReasonTotalFull)
	c.CountRefusal(Anonymous, ReasonShape)
	s := c.Snapshot()
	for d, want := range map[Decision]uint64{
		DecisionAdmitted: 2, DecisionRefused(ReasonTotalFull): 1, DecisionRefused(ReasonShape): 1, DecisionWaited: 0,
	} {
		if got := s.Decisions[Anonymous][d]; got != want {
			t.Errorf("%s: %d; want %d", d, got, want)
		}
	}
	if s.Outcomes[Anonymous][OutcomeUpstreamFailed] != 1 || s.Holds[Anonymous].Count != 1 {
		t.Errorf("outcomes %v holds %+v", s.Outcomes[Anonymous], s.Holds[Anonymous])
	}
}

func TestConcurrentUse(t *testing.T) {
	c := NewController(compile(t, Config{Total: 20}))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				class := Class(i+g) % Webhook // those after it have buckets, whose refill is real time
				p, _ := c.Admit(t.Context(), from(class, Key(g*100+i%7+1)))
				if i%5 == 0 {
					p.Move(Stream)
				}
				if i%7 == 0 {
					p.Abandon()
				}
				p.End(OutcomeCompleted)
				p.End(OutcomePanic)
				if i%100 == 0 {
					c.Apply(compile(t, Config{Total: 15 + i/100}))
				}
			}
		})
	}
	wg.Wait()
	mustBeIdle(t, c)
}

// A bucket refuses a client that obeys Retry-After at once, and makes any other
// wait; a full class makes both wait.
func TestWhoComesBackDoesNotWaitForTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewController(compile(t, Config{Classes: map[string]*ClassConfig{"read": {Max: ptr(2), CallerBucket: &BucketConfig{Burst: 1, PerSecond: 1}}}}))
		back := from(Read, 1)
		back.ComesBack = true
		first, _ := c.Admit(t.Context(), back)
		start := time.Now()
		if _, refusal := c.Admit(t.Context(), back); refusal == nil || refusal.Reason != ReasonCallerBucket || time.Since(start) != 0 {
			t.Errorf("%v after %v, want a refusal at once", refusal, time.Since(start))
		}
		second, refusal := c.Admit(t.Context(), from(Read, 1))
		if refusal != nil || time.Since(start) != time.Second {
			t.Errorf("%v after %v, want a permit with the next token", refusal, time.Since(start))
		}
		time.AfterFunc(time.Second, func() { first.End(OutcomeCompleted) })
		other := from(Read, 2)
		other.ComesBack = true
		third, refusal := c.Admit(t.Context(), other)
		if refusal != nil || time.Since(start) != 2*time.Second {
			t.Errorf("%v after %v, want the next place", refusal, time.Since(start))
		}
		second.End(OutcomeCompleted)
		third.End(OutcomeCompleted)
	})
}

// Tokens that waiters will take are not there for who comes back.
func TestWhoComesBackCountsTheWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewController(compile(t, Config{Classes: map[string]*ClassConfig{"read": {Max: ptr(1), CallerBucket: &BucketConfig{Burst: 3, PerSecond: 0.1}}}}))
		back := from(Read, 1)
		back.ComesBack = true
		first, _ := c.Admit(t.Context(), back)
		for range 2 {
			go func() { p, _ := c.Admit(t.Context(), back); p.End(OutcomeCompleted) }()
			synctest.Wait()
		}
		start := time.Now()
		if _, refusal := c.Admit(t.Context(), back); refusal == nil || refusal.Reason != ReasonCallerBucket || time.Since(start) != 0 {
			t.Errorf("%v after %v: the two that wait will take the last tokens", refusal, time.Since(start))
		}
		first.End(OutcomeCompleted)
		synctest.Wait()
	})
}
