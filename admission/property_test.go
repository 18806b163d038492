package admission

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// machine drives the engine and the model side by side.
type machine struct {
	c     *Controller
	clock *handClock
	m     *model
	seen  []*modelRequest // granted after a wait and not yet collected
	mode  mode
	turns turns
	step  int
}

// mode is what a run is about.
type mode struct {
	name    string
	classes []Class
	fair    bool // no limit is shared between callers, so that turns can be checked
	crowded bool // long queues and nothing but places, so that turns matter
}

var modes = []mode{
	{name: "shared limits", classes: []Class{Push, Read, Anonymous, LFS, LoginStart}},
	{name: "own limits", classes: []Class{Push, Read, Anonymous, LFS, LoginStart}, fair: true},
	{name: "turns", classes: []Class{Anonymous}, fair: true, crowded: true},
}

func drawPolicy(t *rapid.T, m mode) *Policy {
	cfg := Config{AllowStarvation: true, Total: rapid.IntRange(3, 7).Draw(t, "total"), Classes: map[string]*ClassConfig{
		"discovery": {Reserve: ptr(0)}, "candidate": {Reserve: ptr(0)},
	}}
	left := cfg.Total
	for _, c := range m.classes {
		cc := &ClassConfig{
			Max:       ptr(rapid.IntRange(1, 4).Draw(t, "max")),
			CallerMax: ptr(rapid.IntRange(0, 2).Draw(t, "caller max")),
			Wait:      &WaitConfig{Size: rapid.IntRange(0, 5).Draw(t, "wait size"), Max: Duration(3 * time.Second)},
		}
		if c.Git() {
			cc.Reserve = ptr(rapid.IntRange(0, min(2, left, *cc.Max)).Draw(t, "reserve"))
			left -= *cc.Reserve
		}
		if c.hasProof() {
			cc.CallerMax, cc.AddressMax = ptr(0), cc.CallerMax
		}
		if !m.fair {
			cc.RepoMax = ptr(rapid.IntRange(0, 2).Draw(t, "repo max"))
		}
		if m.crowded {
			cc.Max, cc.Wait.Size = ptr(rapid.IntRange(1, 2).Draw(t, "max")), 30
			cfg.Classes[c.String()] = cc
			continue
		}
		cc.Bucket = drawBucket(t, "bucket", 3)
		cc.Bytes = drawBucket(t, "bytes", 8)
		cc.CallerBucket = drawBucket(t, "caller bucket", 3)
		cfg.Classes[c.String()] = cc
	}
	p, problems := cfg.Compile()
	if p == nil {
		t.Skip(problems)
	}
	p.Classes[LFS].UnprovenMax = rapid.IntRange(0, 2).Draw(t, "unproven max")
	return p
}

// drawBucket keeps to rates that count exactly in floating point.
func drawBucket(t *rapid.T, label string, burst int64) *BucketConfig {
	if rapid.IntRange(0, 2).Draw(t, label) != 0 {
		return nil
	}
	return &BucketConfig{
		Burst:     rapid.Int64Range(1, burst).Draw(t, label+" burst"),
		PerSecond: rapid.SampledFrom([]float64{0.5, 1, 2, 4}).Draw(t, label+" rate"),
	}
}

func (x *machine) draw(t *rapid.T) *modelRequest {
	r := &modelRequest{
		class:  rapid.SampledFrom(x.mode.classes).Draw(t, "class"),
		group:  Key(rapid.IntRange(1, 3).Draw(t, "group")),
		cont:   rapid.IntRange(0, 3).Draw(t, "continuation") == 0,
		proven: rapid.Bool().Draw(t, "proven"),
		bytes:  rapid.Int64Range(0, 10).Draw(t, "bytes"),
	}
	if a := rapid.IntRange(0, 2).Draw(t, "address"); a > 0 {
		r.keys[ByAddress] = r.group*10 + Key(a)
		if x.mode.fair && r.cont { // turns are per lane; a cap that both share mixes them
			r.keys[ByAddress] += 100
		}
	}
	r.keys[ByRepository] = Key(rapid.IntRange(0, 2).Draw(t, "repository"))
	return r
}

func (r *modelRequest) request() *Request {
	return &Request{Class: r.class, Group: r.group, Keys: r.keys, Continuation: r.cont, Proven: r.proven, Bytes: r.bytes}
}

func TestProperties(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				p := drawPolicy(t, m)
				clock := newHandClock()
				x := &machine{clock: clock, m: newModel(p), mode: m, turns: newTurns()}
				x.c = NewControllerWith(p, Options{Clock: clock.now})
				t.Repeat(map[string]func(*rapid.T){
					"":        x.check,
					"arrive":  x.arrive,
					"arrive2": x.arrive,
					"try":     x.try,
					"end":     x.end,
					"end2":    x.end,
					"take":    x.take,
					"leave":   x.leave,
					"time":    x.time,
					"apply":   x.apply,
				})
				x.drain(t)
			})
		})
	}
}

func (x *machine) try(t *rapid.T) {
	r := x.draw(t)
	want := x.m.stops(r)
	overtakes := want == ReasonNone && x.m.overtakes(r)
	before := x.levels()
	p, refusal := x.c.TryAdmit(r.request())
	switch {
	case want == ReasonNone && !overtakes:
		if refusal != nil {
			t.Fatalf("%+v was refused for %s; nothing stops it", *r, refusal.Reason)
		}
		r.permit = p
		x.m.admit(r)
	case refusal == nil:
		t.Fatalf("%+v was admitted; want %s (overtakes %v)", *r, want, overtakes)
	default:
		if want != ReasonNone && refusal.Reason != want {
			t.Fatalf("%+v was refused for %s; want %s", *r, refusal.Reason, want)
		}
		x.unchanged(t, before)
	}
	x.granted(t)
}

func (x *machine) arrive(t *rapid.T) {
	r := x.draw(t)
	why := x.m.stops(r)
	overtakes := why == ReasonNone && x.m.overtakes(r)
	refusal, victims := ReasonNone, []*modelRequest(nil)
	if waits := why != ReasonNone || overtakes; waits {
		refusal, victims = x.m.mayWait(r, why)
	}
	before := x.levels()
	p, got, w, _ := x.c.begin(r.request(), true)
	switch {
	case why == ReasonNone && !overtakes:
		if got != nil || w != nil {
			t.Fatalf("%+v was not admitted (%+v); nothing stops it", *r, got)
		}
		r.permit = p
		x.m.admit(r)
	case w != nil:
		if refusal != ReasonNone {
			t.Fatalf("%+v waits; want a refusal for %s", *r, refusal)
		}
		r.w = w
		x.m.waiting = append(x.m.waiting, r)
		x.displaced(t, victims)
	case got == nil:
		t.Fatalf("%+v was admitted; want %s (overtakes %v)", *r, why, overtakes)
	default:
		// Without a queue, what overtakes is refused for what stops the others.
		if got.Reason != refusal && refusal != ReasonNone || refusal == ReasonNone && !overtakes {
			t.Fatalf("%+v was refused for %s; want %s", *r, got.Reason, refusal)
		}
		x.unchanged(t, before)
	}
	x.granted(t)
}

// displaced removes the one victim that was refused.
func (x *machine) displaced(t *rapid.T, victims []*modelRequest) {
	var gone []*modelRequest
	for _, w := range x.m.waiting {
		if w.w.state == refused {
			if w.w.refusal.Reason != ReasonDisplaced || !slices.Contains(victims, w) {
				t.Fatalf("%+v was refused for %s", *w, w.w.refusal.Reason)
			}
			gone = append(gone, w)
		}
	}
	if want := min(1, len(victims)); len(gone) != want {
		t.Fatalf("%d were displaced; want %d", len(gone), want)
	}
	for _, w := range gone {
		x.m.leave(w)
	}
}

func (x *machine) end(t *rapid.T) {
	var taken []*modelRequest
	for _, r := range x.m.live {
		if r.permit.Valid() {
			taken = append(taken, r)
		}
	}
	if len(taken) == 0 {
		t.Skip("nobody to end")
	}
	r := rapid.SampledFrom(taken).Draw(t, "who")
	x.m.end(r)
	r.permit.End(OutcomeCompleted)
	x.granted(t)
}

func (x *machine) take(t *rapid.T) {
	if len(x.seen) == 0 {
		t.Skip("nobody to take a grant")
	}
	r := x.seen[0]
	x.seen = x.seen[1:]
	if rapid.IntRange(0, 2).Draw(t, "gone") == 0 {
		x.m.end(r)
		x.m.refund(r)
		if _, refusal := x.c.collect(r.w, true); refusal == nil || refusal.Reason != ReasonGone {
			t.Fatalf("a client that left got %+v", refusal)
		}
	} else if p, refusal := x.c.collect(r.w, false); refusal != nil {
		t.Fatalf("a granted waiter got %s", refusal.Reason)
	} else {
		r.permit = p
	}
	x.granted(t)
}

func (x *machine) leave(t *rapid.T) {
	if len(x.m.waiting) == 0 {
		t.Skip("nobody waits")
	}
	r := rapid.SampledFrom(x.m.waiting).Draw(t, "who")
	gone := rapid.Bool().Draw(t, "gone")
	x.m.leave(r)
	_, refusal := x.c.collect(r.w, gone)
	if want := map[bool]Reason{true: ReasonGone, false: ReasonWaitTimeout}[gone]; refusal == nil || refusal.Reason != want {
		t.Fatalf("leaving gave %+v; want %s", refusal, want)
	}
	x.granted(t)
}

func (x *machine) time(t *rapid.T) {
	d := time.Duration(rapid.IntRange(1, 8).Draw(t, "quarters")) * 250 * time.Millisecond
	x.clock.advance(d)
	x.m.now += d
	x.c.Snapshot()
	x.granted(t)
}

func (x *machine) apply(t *rapid.T) {
	if x.mode.crowded {
		t.Skip("limits stay")
	}
	p := drawPolicy(t, x.mode)
	x.m.apply(p)
	x.c.Apply(p)
	x.turns = newTurns()
	x.granted(t)
}

// granted moves those whom the engine has granted from waiting to live. With
// one grant, it checks whose turn it was.
func (x *machine) granted(t *rapid.T) {
	var now []*modelRequest
	for _, w := range x.m.waiting {
		if w.w.state == granted {
			now = append(now, w)
		}
	}
	if len(now) == 1 {
		x.checkTurn(t, now[0])
	} else if len(now) > 1 {
		x.turns = newTurns()
	}
	for _, r := range now {
		x.m.leave(r)
		x.m.admit(r)
		x.seen = append(x.seen, r)
	}
	x.step++
	x.turns.note(x)
}

// check holds after every step.
func (x *machine) check(t *rapid.T) {
	s := x.c.Snapshot()
	x.granted(t)
	all := 0
	for c := range NumClasses {
		held := x.m.heldBy(c)
		if got := s.Classes[c].InUse; got != held {
			t.Fatalf("%s: %d in use; want %d", c, got, held)
		}
		if n := x.m.waitingIn(func(r *modelRequest) bool { return r.class == c }); s.Classes[c].Waiting != n {
			t.Fatalf("%s: %d waiting; want %d", c, s.Classes[c].Waiting, n)
		}
		if c.Git() {
			all += held
		}
		x.checkForgotten(t, c)
	}
	if s.InUse != all {
		t.Fatalf("%d git places in use; want %d", s.InUse, all)
	}
}

// checkForgotten fails when somebody waits whom nothing stops. Among newcomers
// one that lacks bytes may hold up others that do not.
func (x *machine) checkForgotten(t *rapid.T, c Class) {
	if x.m.place(c) != ReasonNone {
		return
	}
	short := false
	var ready []*modelRequest
	for _, w := range x.m.waiting {
		if w.class != c || !x.m.unhindered(w) {
			continue
		}
		if x.m.shared(w) != ReasonNone {
			short = true
		} else {
			ready = append(ready, w)
		}
	}
	for _, w := range ready {
		if w.cont || !short {
			t.Fatalf("%+v waits though nothing stops it", *w)
		}
	}
}

func (x *machine) unchanged(t *rapid.T, before string) {
	if after := x.levels(); after != before {
		t.Fatalf("a refusal changed\n%s to\n%s", before, after)
	}
}

func (x *machine) levels() string {
	c := x.c
	c.lock(zeroTime)
	defer c.mu.Unlock()
	out := fmt.Sprint(c.git, c.waiters, c.permits.live)
	at := c.base.Add(time.Duration(c.now))
	for i := range c.classes {
		cl := &c.classes[i]
		out += fmt.Sprint("; ", cl.class, cl.held, cl.unproven, cl.queue.n, cl.queue.bytes)
		for _, b := range []*bucket{&cl.bucket, &cl.bytes} {
			if b.lim != nil {
				out += fmt.Sprint(" ", b.lim.TokensAt(at))
			}
		}
	}
	c.callers.each(func(e *callerEntry) {
		if !e.forgettable(c.now) {
			out += fmt.Sprint(" ", e.id, e.count, e.full)
		}
	})
	return out
}

// drain lets everybody leave or finish; everything must return to zero.
func (x *machine) drain(t *rapid.T) {
	for len(x.m.waiting) > 0 {
		r := x.m.waiting[0]
		x.m.leave(r)
		x.c.collect(r.w, true)
		x.granted(t)
	}
	for _, r := range x.seen {
		r.permit, _ = x.c.collect(r.w, false)
	}
	for _, r := range x.m.live {
		r.permit.End(OutcomeCompleted)
	}
	mustBeIdle(t, x.c)
}
