package admission

import (
	"sync"
	"testing"
	"time"
)

func TestAPermitEndsOnce(t *testing.T) {
	c, clock := standing(t, Config{})
	p := mustAdmit(t, c, from(Push, 1))
	clock.advance(3 * time.Second)
	copied := p
	p.End(OutcomeCompleted)
	copied.End(OutcomePanic)
	p.End(OutcomeDeadline)
	s := c.Snapshot()
	if s.Outcomes[Push][OutcomeCompleted] != 1 || s.Outcomes[Push][OutcomePanic] != 0 || s.Outcomes[Push][OutcomeDeadline] != 0 {
		t.Errorf("outcomes %v; want one completed", s.Outcomes[Push])
	}
	if h := s.Holds[Push]; h.Count != 1 || h.Sum != 3 {
		t.Errorf("holds %+v; want one of 3 s", h)
	}
	mustBeIdle(t, c)
}

// TestAnEndedPermitTouchesNoOther ends a permit again after its record went to
// somebody else.
func TestAnEndedPermitTouchesNoOther(t *testing.T) {
	c, _ := standing(t, Config{})
	old := mustAdmit(t, c, from(Push, 1))
	old.End(OutcomeCompleted)
	next := mustAdmit(t, c, from(Read, 2))
	if next.idx != old.idx {
		t.Fatalf("record %d was not used again, %d was: the test proves nothing", old.idx, next.idx)
	}
	old.End(OutcomePanic)
	if old.Abandon() || old.Move(Stream) || old.Valid() || old.Class() != Other {
		t.Error("an ended permit still does something")
	}
	old.GiveBackBytes(5)
	if !next.Valid() || next.Class() != Read || c.Snapshot().Classes[Read].InUse != 1 {
		t.Error("ending a permit again ended another one")
	}
}

func TestTheZeroPermitHasEnded(t *testing.T) {
	var p Permit
	p.End(OutcomeCompleted)
	p.GiveBackBytes(1)
	if p.Valid() || p.Abandon() || p.Move(Stream) || p.Class() != Other {
		t.Error("the zero permit does something")
	}
}

func TestEndingFromEverywhereAtOnce(t *testing.T) {
	c := NewController(compile(t, Config{}))
	for range 200 {
		p, _ := c.TryAdmit(from(Push, 1))
		var wg sync.WaitGroup
		for o := range 4 {
			wg.Go(func() { p.End(Outcome(o)) })
		}
		wg.Wait()
	}
	var ends uint64
	for _, n := range c.Snapshot().Outcomes[Push] {
		ends += n
	}
	if ends != 200 {
		t.Errorf("%d ends of 200 permits", ends)
	}
	mustBeIdle(t, c)
}

func TestAbandonedWorkCountsAgainstEveryLimit(t *testing.T) {
	c, _ := standing(t, anonymousOnly(ClassConfig{Max: ptr(2), CallerMax: ptr(1)}))
	p := mustAdmit(t, c, from(Anonymous, 1))
	if !p.Abandon() || p.Abandon() {
		t.Error("a permit is abandoned once")
	}
	if s := c.Snapshot().Classes[Anonymous]; s.InUse != 0 || s.Abandoned != 1 {
		t.Errorf("%+v; want 0 in use, 1 abandoned", s)
	}
	mustRefuse(t, c, from(Anonymous, 1), ReasonCallerCap)
	mustAdmit(t, c, from(Anonymous, 2))
	mustRefuse(t, c, from(Anonymous, 3), ReasonPoolFull)
	if p.Move(Stream) {
		t.Error("abandoned work moved")
	}
	p.End(OutcomeAbandoned)
	mustAdmit(t, c, from(Anonymous, 1))
}

func TestMoveExchangesThePlace(t *testing.T) {
	cfg := Config{WaitOff: true, Classes: map[string]*ClassConfig{
		"web": {Max: ptr(1), CallerMax: ptr(1)}, "stream": {Max: ptr(2), CallerMax: ptr(1)},
	}}
	c, _ := standing(t, cfg)
	a := mustAdmit(t, c, from(Web, 1))
	if !a.Move(Stream) || a.Class() != Stream {
		t.Fatal("there was room, but the permit did not move")
	}
	b := mustAdmit(t, c, from(Web, 1))
	if b.Move(Stream) || b.Class() != Web {
		t.Error("the caller's cap of the new class was not obeyed")
	}
	b.End(OutcomeCompleted)
	d := mustAdmit(t, c, from(Web, 2))
	if !d.Move(Stream) {
		t.Fatal("there was room, but the permit did not move")
	}
	e := mustAdmit(t, c, from(Web, 3))
	if e.Move(Stream) || e.Class() != Web {
		t.Error("a full class took another permit")
	}
	s := c.Snapshot()
	if s.Outcomes[Web][OutcomeMoved] != 2 || s.Classes[Stream].InUse != 2 || s.Classes[Web].InUse != 1 {
		t.Errorf("web %+v stream %+v", s.Classes[Web], s.Classes[Stream])
	}
	for _, p := range []Permit{a, b, d, e} {
		p.End(OutcomeCompleted)
	}
	mustBeIdle(t, c)
}

// A permit that moves pays the buckets of its new class, all or nothing.
func TestMovePaysTheBuckets(t *testing.T) {
	cfg := Config{WaitOff: true, Classes: map[string]*ClassConfig{"stream": {
		Bucket: &BucketConfig{Burst: 3, PerSecond: 0.001}, CallerBucket: &BucketConfig{Burst: 1, PerSecond: 0.001},
	}}}
	c, _ := standing(t, cfg)
	a, b, other := mustAdmit(t, c, from(Web, 1)), mustAdmit(t, c, from(Web, 1)), mustAdmit(t, c, from(Web, 2))
	if !a.Move(Stream) || b.Move(Stream) || !other.Move(Stream) {
		t.Error("want one stream for each caller")
	}
	if left := c.Snapshot().Classes[Stream].Bucket.Tokens; left < 1 || left > 1.1 {
		t.Errorf("%v tokens are left of 3, want 1", left)
	}
	for _, p := range []Permit{a, b, other} {
		p.End(OutcomeCompleted)
	}
	mustBeIdle(t, c)
}
