package admission

import (
	"testing"
	"time"
)

// TestARetryAfterThatLongSucceeds drains each kind of bucket and comes back
// exactly when the refusal said, for many rates and for every spread.
func TestARetryAfterThatLongSucceeds(t *testing.T) {
	for _, rate := range []float64{0.01, 0.3, 1, 3, 7, 50, 1000} {
		for _, spread := range []float64{0, 0.5, 0.999999} {
			for kind, cc := range map[string]ClassConfig{
				"class":  {Bucket: &BucketConfig{3, rate}},
				"caller": {CallerBucket: &BucketConfig{3, rate}},
				"bytes":  {Bytes: &BucketConfig{3, rate}},
			} {
				clock := newHandClock()
				c := NewControllerWith(compile(t, anonymousOnly(cc)), Options{Clock: clock.now, Spread: func() float64 { return spread }})
				r := from(Anonymous, 1)
				r.Bytes = 1
				for range 20 {
					p, refusal := c.TryAdmit(r)
					p.End(OutcomeCompleted)
					if refusal == nil {
						continue
					}
					if refusal.RetryAfter < time.Second || refusal.RetryAfter > 300*time.Second {
						t.Fatalf("%s bucket, %v/s: retry after %v", kind, rate, refusal.RetryAfter)
					}
					clock.advance(refusal.RetryAfter)
					mustAdmit(t, c, r).End(OutcomeCompleted)
				}
			}
		}
	}
}

func TestRetryTimesAreSpread(t *testing.T) {
	c := NewController(compile(t, Config{Total: 5, WaitOff: true}))
	mustAdmit(t, c, from(Anonymous, 1))
	seen := make(map[time.Duration]bool)
	for range 200 {
		seen[mustRefuse(t, c, from(Anonymous, 2), ReasonTotalFull).RetryAfter] = true
	}
	if len(seen) < 3 {
		t.Errorf("200 refusals named only %v", seen)
	}
}

// TestRetryTimeFollowsHoldTimes: places come free as fast as they were seen to.
func TestRetryTimeFollowsHoldTimes(t *testing.T) {
	cfg := anonymousOnly(ClassConfig{Max: ptr(4)})
	c, clock := standing(t, cfg)
	hold := func(d time.Duration) {
		for range 60 {
			p := mustAdmit(t, c, from(Anonymous, 1))
			clock.advance(d)
			p.End(OutcomeCompleted)
		}
	}
	for _, tc := range []struct{ held, want time.Duration }{
		{40 * time.Second, 10 * time.Second}, {time.Second / 10, time.Second}, {2 * time.Hour, 300 * time.Second},
	} {
		hold(tc.held)
		var held []Permit
		for range 4 {
			held = append(held, mustAdmit(t, c, from(Anonymous, 1)))
		}
		got := mustRefuse(t, c, from(Anonymous, 2), ReasonPoolFull).RetryAfter
		if got < tc.want || got > tc.want+tc.want/10 {
			t.Errorf("with 4 places held %v each: retry after %v; want about %v", tc.held, got, tc.want)
		}
		for _, p := range held {
			p.End(OutcomeCompleted)
		}
		c, clock = standing(t, cfg)
	}
}

func TestSpreadSecondsStayInBounds(t *testing.T) {
	for _, spread := range []float64{0, 0.5, 0.9999} {
		c := &Controller{spread: func() float64 { return spread }}
		for _, s := range []float64{0, 0.2, 1, 1.5, 10, 100, 299.5, 300, 1e9, 1e300} {
			got := float64(c.spreadSeconds(s * 1e9))
			if got < 1 || got > 300 || got < min(s, 240) || got > max(s*1.25, s+4, 4) {
				t.Errorf("estimate %v s, spread %v: %v s", s, spread, got)
			}
		}
	}
}
