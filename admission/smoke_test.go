package admission

import "testing"

func TestAdmitAndEnd(t *testing.T) {
	p, problems := Config{}.Compile()
	if p == nil {
		t.Fatal(problems)
	}
	c := NewController(p)
	permit, refusal := c.TryAdmit(&Request{Class: Push, Keys: [NumScopes]Key{1, 2}})
	if refusal != nil || !permit.Valid() {
		t.Fatal(refusal)
	}
	permit.End(OutcomeCompleted)
	if s := c.Snapshot(); s.InUse != 0 || s.Callers.Tracked != 0 {
		t.Fatalf("%+v", s)
	}
}
