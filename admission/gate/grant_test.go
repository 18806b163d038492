package gate

import (
	"testing"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
)

func TestGrantPaysForOneFetch(t *testing.T) {
	g, now := newGrants(), time.Unix(1000, 0)
	k := grantKey{caller: 1, repository: 2}
	g.give(k, now)
	for _, c := range []struct {
		step grantStep
		n    int
	}{{stepRefs, 1}, {stepFetch, 1}, {stepRound, grantRounds}, {stepProbe, 1}, {stepPush, 1}} {
		for i := range c.n + 1 {
			if got, want := g.use(k, c.step, now), i < c.n; got != want {
				t.Errorf("step %d, use %d: %v, want %v", c.step, i+1, got, want)
			}
		}
	}
	if g.use(grantKey{caller: 3, repository: 2}, stepFetch, now) {
		t.Error("another caller used the grant")
	}
}

func TestGrantEnds(t *testing.T) {
	g, now := newGrants(), time.Unix(1000, 0)
	k := grantKey{caller: 1}
	g.give(k, now)
	g.extend(k, now.Add(100*time.Second))
	if !g.use(k, stepRefs, now.Add(200*time.Second)) {
		t.Error("an extended grant is gone")
	}
	if g.use(k, stepFetch, now.Add(221*time.Second)) {
		t.Error("an old grant still pays")
	}
}

func TestGrantBounds(t *testing.T) {
	g, now := newGrants(), time.Unix(1000, 0)
	for i := range 3 * grantsPerOwner {
		g.give(grantKey{caller: 1, repository: admission.Key(i)}, now)
	}
	if n := g.size(); n != grantsPerOwner {
		t.Errorf("one caller holds %d grants", n)
	}
	for i := range 2 * grantsMax {
		g.give(grantKey{caller: admission.Key(i + 2)}, now)
	}
	if n := g.size(); n != grantsMax {
		t.Errorf("%d grants in all", n)
	}
	g.give(grantKey{caller: 0}, now)
	if g.use(grantKey{caller: 0}, stepRefs, now) {
		t.Error("who is no caller has a grant")
	}
	g.give(grantKey{caller: 9}, now.Add(time.Hour))
	if n := g.size(); n != 1 || len(g.byOwner) != 1 || len(g.byKey) != 1 {
		t.Errorf("expired grants are kept: %d, %d, %d", n, len(g.byOwner), len(g.byKey))
	}
}

func TestStepOf(t *testing.T) {
	for _, c := range []struct {
		k      classify.Kind
		s      shape
		length int64
		want   grantStep
	}{
		{classify.PushRPC, 0, 4, stepProbe},
		{classify.PushRPC, 0, 179, stepPush},
		{classify.PushRPC, 0, -1, stepPush},
		{classify.ReadRPC, shapeRefs, 100, stepRefs},
		{classify.ReadRPC, shapeRound, 100, stepRound},
		{classify.ReadRPC, shapeClone, 100, stepFetch},
		{classify.ReadRPC, shapeUnknown, 100, stepFetch},
		{classify.Dumb, shapeUnknown, 0, stepNone},
	} {
		if got := stepOf(c.k, c.s, c.length); got != c.want {
			t.Errorf("%v %v %d: %v, want %v", c.k, c.s, c.length, got, c.want)
		}
	}
}
