package admission

import (
	"testing"
	"time"
)

func TestApplyKeepsBucketLevels(t *testing.T) {
	for kind, set := range map[string]func(*ClassConfig, *BucketConfig){
		"class":  func(cc *ClassConfig, b *BucketConfig) { cc.Bucket = b },
		"bytes":  func(cc *ClassConfig, b *BucketConfig) { cc.Bytes = b },
		"caller": func(cc *ClassConfig, b *BucketConfig) { cc.CallerBucket = b },
	} {
		t.Run(kind, func(t *testing.T) {
			policy := func(b *BucketConfig) *Policy {
				cc := ClassConfig{}
				set(&cc, b)
				return compile(t, anonymousOnly(cc))
			}
			slow := func(burst int64) *Policy { return policy(&BucketConfig{burst, 0.001}) }
			clock := newHandClock()
			c := NewControllerWith(slow(10), Options{Clock: clock.now})
			r := from(Anonymous, 1)
			r.Bytes = 1
			left := func() (n int) {
				for {
					p, refusal := c.TryAdmit(r)
					if refusal != nil {
						return n
					}
					p.End(OutcomeCompleted)
					n++
				}
			}
			for range 4 {
				mustAdmit(t, c, r).End(OutcomeCompleted)
			}
			c.Apply(slow(80)) // a larger bucket is not fuller
			c.Apply(policy(nil))
			c.Apply(slow(20))
			if n := left(); n != 6 {
				t.Errorf("%d tokens after 4 of 10 were taken and limits changed; want 6", n)
			}
			clock.advance(9000 * time.Second)
			c.Snapshot()
			c.Apply(slow(5)) // a smaller one keeps at most its burst
			c.Apply(slow(50))
			want := 5
			if kind == "caller" {
				want = 50 // full at 5 it could be forgotten, and full it stays
			}
			if n := left(); n != want {
				t.Errorf("%d tokens after shrinking 9 to 5 and growing again; want %d", n, want)
			}
		})
	}
}

func TestShrinkingAdmitsNobodyUntilItFits(t *testing.T) {
	c, _ := standing(t, Config{Total: 20, WaitOff: true})
	var held []Permit
	for i := range Key(10) {
		held = append(held, mustAdmit(t, c, from(Anonymous, i<<8|1)))
	}
	c.Apply(compile(t, Config{Total: 6, WaitOff: true}))
	for i := range 4 {
		mustRefuse(t, c, from(Push, 0x9901), ReasonTotalFull)
		held[i].End(OutcomeCompleted)
	}
	mustRefuse(t, c, from(Push, 0x9901), ReasonTotalFull)
	held[4].End(OutcomeCompleted)
	mustAdmit(t, c, from(Push, 0x9901)).End(OutcomeCompleted)
	mustRefuse(t, c, from(Anonymous, 0x9901), ReasonPoolFull)
	for _, p := range held {
		p.End(OutcomeCompleted)
	}
	mustBeIdle(t, c)
}

// TestApplyCountsWhatWasInFlight switches caps on and off under permits.
func TestApplyCountsWhatWasInFlight(t *testing.T) {
	off := compile(t, anonymousOnly(ClassConfig{}))
	on := compile(t, anonymousOnly(ClassConfig{CallerMax: ptr(3), RepoMax: ptr(3)}))
	c := NewController(off)
	r := from(Anonymous, 1)
	r.Keys[ByRepository] = 9
	a, b := mustAdmit(t, c, r), mustAdmit(t, c, r)
	c.Apply(on)
	d := mustAdmit(t, c, r)
	mustRefuse(t, c, r, ReasonCallerCap)
	c.Apply(off)
	if n := c.Snapshot().Callers.Tracked; n != 0 {
		t.Errorf("%d callers tracked without any cap", n)
	}
	e := mustAdmit(t, c, r)
	c.Apply(on)
	a.End(OutcomeCompleted)
	mustRefuse(t, c, r, ReasonCallerCap)
	b.End(OutcomeCompleted)
	f := mustAdmit(t, c, r)
	for _, p := range []Permit{d, e, f} {
		p.End(OutcomeCompleted)
	}
	mustBeIdle(t, c)
}

func TestCountersSurviveApply(t *testing.T) {
	c, _ := standing(t, Config{})
	mustAdmit(t, c, from(Push, 1)).End(OutcomeCompleted)
	before := c.Snapshot()
	c.Apply(compile(t, Config{Total: 5}))
	after := c.Snapshot()
	if after.Decisions != before.Decisions || after.Outcomes != before.Outcomes || after.Holds != before.Holds {
		t.Error("a configuration change lost counters")
	}
}
