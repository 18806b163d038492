package admission

import "pgregory.net/rapid"

// turns remembers, per class and lane, when a group or a caller last had its
// turn and since when it could have had one.
type turns struct {
	served     map[turnKey]int
	eligible   map[turnKey]int
	streak     map[Class]int // continuations in a row
	streakFrom map[Class]int // step of the first of them
}

type turnKey struct {
	class  Class
	cont   bool
	group  Key
	caller Key  // of the group
	whole  bool // the group itself
}

func (r *modelRequest) turnKeys() [2]turnKey {
	caller := r.keys[ByAddress]
	if caller == 0 {
		caller = r.keys[ByCredential]
	}
	return [2]turnKey{
		{class: r.class, cont: r.cont, group: r.group, whole: true},
		{class: r.class, cont: r.cont, group: r.group, caller: caller},
	}
}

func newTurns() turns {
	return turns{served: make(map[turnKey]int), eligible: make(map[turnKey]int), streak: make(map[Class]int), streakFrom: make(map[Class]int)}
}

// note records, after a step, who could be served.
func (tu *turns) note(x *machine) {
	now := make(map[turnKey]bool)
	for _, w := range x.m.waiting {
		if x.m.unhindered(w) {
			for _, k := range w.turnKeys() {
				now[k] = true
			}
		}
	}
	for k := range tu.eligible {
		if !now[k] {
			delete(tu.eligible, k)
		}
	}
	for k := range now {
		if _, ok := tu.eligible[k]; !ok {
			tu.eligible[k] = x.step
		}
	}
}

// checkTurn is called with the one waiter that this step granted, while the
// model still has it waiting.
func (x *machine) checkTurn(t *rapid.T, r *modelRequest) {
	if why := x.m.stops(r); why != ReasonNone {
		t.Fatalf("%+v was granted against %s", *r, why)
	}
	for _, w := range x.m.waiting {
		if w == r || !x.m.unhindered(w) {
			continue
		}
		if w.class < r.class && w.class.Git() && r.class.Git() && x.m.stops(w) == ReasonNone && !x.heldUp(w) &&
			x.m.heldBy(r.class) >= x.m.p.Classes[r.class].Reserve {
			t.Fatalf("%s took a shared place before %s", r.class, w.class)
		}
		older := w.turnKeys() == r.turnKeys() && w.w.seq < r.w.seq
		if older && x.mode.fair {
			t.Fatalf("%+v was granted before the older %+v of the same caller", *r, *w)
		}
	}
	if x.mode.fair {
		x.checkRotation(t, r)
	}
	x.checkStreak(t, r)
}

// heldUp reports whether another newcomer of w's class lacks tokens, so that w
// may have to wait for its turn.
func (x *machine) heldUp(w *modelRequest) bool {
	for _, o := range x.m.waiting {
		if o.class == w.class && !w.cont && x.m.unhindered(o) && x.m.shared(o) != ReasonNone {
			return true
		}
	}
	return false
}

// checkRotation: between two turns of one, everybody else who could be served
// all the while has had a turn.
func (x *machine) checkRotation(t *rapid.T, r *modelRequest) {
	for _, k := range r.turnKeys() {
		last, ok := x.turns.served[k]
		for other, since := range x.turns.eligible {
			sameRing := other.class == k.class && other.cont == k.cont && other.whole == k.whole &&
				(k.whole || other.group == k.group)
			if ok && sameRing && other != k && since <= last && x.turns.served[other] <= last {
				t.Fatalf("%+v had two turns (steps %d, %d) while %+v waited since %d", k, last, x.step, other, since)
			}
		}
	}
	for _, k := range r.turnKeys() {
		x.turns.served[k] = x.step
	}
}

// checkStreak: never three continuations in a row while a newcomer could have
// gone all the while.
func (x *machine) checkStreak(t *rapid.T, r *modelRequest) {
	k := r.class
	if !r.cont || !x.newcomerSince(k, x.turns.streakFrom[k]) {
		x.turns.streak[k] = 0
	}
	if !r.cont {
		return
	}
	if x.turns.streak[k] == 0 {
		x.turns.streakFrom[k] = x.step
	}
	if x.turns.streak[k]++; x.turns.streak[k] > streakMax && x.newcomerSince(k, x.turns.streakFrom[k]-1) {
		t.Fatalf("%d continuations of %s in a row while a newcomer waited", x.turns.streak[k], k)
	}
}

// newcomerSince reports whether a newcomer could have gone ever since a step.
func (x *machine) newcomerSince(c Class, step int) bool {
	for _, w := range x.m.waiting {
		if since, ok := x.turns.eligible[w.turnKeys()[1]]; ok && since <= step && w.class == c && !w.cont &&
			x.m.shared(w) == ReasonNone && !x.heldUp(w) {
			return true
		}
	}
	return false
}
