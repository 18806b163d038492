package identity

import (
	"testing"
	"time"
)

func TestRefs(t *testing.T) {
	s := small()
	s.AskedRefs(7, read, start)
	if !s.DidAskRefs(7, push, after(RefsKept-1)) {
		t.Error("within 60 s, whatever the service")
	}
	for name, got := range map[string]bool{
		"after 60 s":         s.DidAskRefs(7, read, after(RefsKept)),
		"another caller":     s.DidAskRefs(8, read, start),
		"another repository": s.DidAskRefs(7, repository(1), start),
		"another site":       s.DidAskRefs(7, Target{"x", read.Repository, ""}, start),
	} {
		if got {
			t.Errorf("%s: asked", name)
		}
	}
	for i := range 3 {
		s.AskedRefs(7, repository(i), after(time.Second))
	}
	if s.DidAskRefs(7, read, after(time.Second)) || !s.DidAskRefs(7, repository(2), after(time.Second)) {
		t.Error("at the bound the oldest goes")
	}
	checkSums(t, s)
}
