package admission

import (
	"testing"
	"time"
)

// reserving is total 5 without waiting, with one place for each step of a push
// and one that is shared.
func reserving() Config {
	return Config{Total: 5, WaitOff: true, Classes: map[string]*ClassConfig{
		"push": {Reserve: ptr(1)}, "read": {Reserve: ptr(1)}, "discovery": {Reserve: ptr(1)},
		"candidate": {Reserve: ptr(1)}, "anonymous": {Reserve: ptr(0)},
	}}
}

// TestAnonymousLoadNeverShedsAPush is the reproduction of requirement A1.
func TestAnonymousLoadNeverShedsAPush(t *testing.T) {
	c, _ := standing(t, reserving())
	clone := mustAdmit(t, c, from(Anonymous, 0x101))

	r := mustRefuse(t, c, from(Anonymous, 0x202), ReasonTotalFull)
	if !r.Shared || r.RetryAfter < time.Second || r.RetryAfter > 300*time.Second {
		t.Errorf("second anonymous request: %+v; want a shared refusal with 1 to 300 s", r)
	}
	push := mustAdmit(t, c, from(Push, 0x303))
	clone.End(OutcomeCompleted)
	push.End(OutcomeCompleted)
	mustBeIdle(t, c)
}

// TestWithoutReservationAnonymousLoadShedsAPush is its counterfactual.
func TestWithoutReservationAnonymousLoadShedsAPush(t *testing.T) {
	cfg := reserving()
	cfg.Total, cfg.AllowStarvation = 4, true
	cfg.Classes["push"].Reserve = ptr(0)
	c, _ := standing(t, cfg)
	clone := mustAdmit(t, c, from(Anonymous, 0x101))

	r := mustRefuse(t, c, from(Push, 0x303), ReasonTotalFull)
	if !r.Shared || r.RetryAfter < time.Second {
		t.Errorf("push: %+v; want a shared refusal with a time", r)
	}
	clone.End(OutcomeCompleted)
	mustAdmit(t, c, from(Push, 0x303)).End(OutcomeCompleted)
	mustBeIdle(t, c)
}

// TestEveryStepOfAPushHasAPlace holds everything that other classes can take
// and then goes the path of a push, for many totals.
func TestEveryStepOfAPushHasAPlace(t *testing.T) {
	for total := minScaledTotal; total <= 300; total++ {
		c, _ := standing(t, Config{Total: total, WaitOff: true})
		for _, step := range pushPath {
			var held []Permit
			for other := Push; other.Git(); other++ {
				for other != step {
					p, refusal := c.TryAdmit(from(other, 1+Key(len(held))<<8))
					if refusal != nil {
						break
					}
					held = append(held, p)
				}
			}
			mustAdmit(t, c, from(step, 0xabcdef00)).End(OutcomeCompleted)
			for _, p := range held {
				p.End(OutcomeCompleted)
			}
		}
		mustBeIdle(t, c)
	}
}
