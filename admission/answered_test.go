package admission

import "testing"

// A request that is answered without a place is not counted as refused, and is
// admitted as any other while there is a place.
func TestWhatIsAnsweredIsNotRefused(t *testing.T) {
	c, _ := standing(t, Config{WaitOff: true, Classes: map[string]*ClassConfig{"discovery": {Max: ptr(1), Reserve: ptr(1)}}})
	knock := from(Discovery, 1<<8)
	knock.HasAnswer = true
	defer mustAdmit(t, c, knock).End(OutcomeCompleted)
	counted := func() uint64 {
		return c.Snapshot().Decisions[Discovery][DecisionRefused(ReasonPoolFull)]
	}
	mustRefuse(t, c, knock, ReasonPoolFull)
	if n := counted(); n != 0 {
		t.Errorf("%d refusals counted, want none", n)
	}
	mustRefuse(t, c, from(Discovery, 2<<8), ReasonPoolFull)
	if n := counted(); n != 1 {
		t.Errorf("%d refusals counted, want 1", n)
	}
}
