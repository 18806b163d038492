package admission

import "testing"

// TestTheHotPathAllocatesNothing covers admission, refusal and every way a
// permit is used.
func TestTheHotPathAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	c := NewController(compile(t, limited()))
	keyer := NewKeyer()
	r := Request{Class: Anonymous}
	for i, s := range []string{"a", "bb"} {
		r.Keys[i] = keyer.String(s)
	}
	full := NewController(compile(t, Config{Total: 5, WaitOff: true}))
	mustAdmit(t, full, from(Anonymous, 1))
	for range 3 * maxRetry {
		full.TryAdmit(from(Anonymous, 2))
	}
	for name, f := range map[string]func(){
		"admit and end": func() {
			p, _ := c.Admit(t.Context(), &r)
			p.End(OutcomeCompleted)
		},
		"refuse": func() { full.TryAdmit(from(Anonymous, 2)) },
		"permit": func() {
			p, _ := c.TryAdmit(&r)
			p.GiveBackBytes(1)
			p.Abandon()
			p.Valid()
			p.End(OutcomeAbandoned)
		},
		"move": func() {
			p, _ := c.TryAdmit(&r)
			p.Move(Stream)
			p.End(OutcomeCompleted)
		},
		"key": func() { keyer.String("some credential") },
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
