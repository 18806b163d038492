package spool

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestFreshPassesThrough: a receiver that answers at once is answered for,
// and nothing is written.
func TestFreshPassesThrough(t *testing.T) {
	bubble(t, HookConfig{}, always(201), func(r *rig) {
		a, took := r.accept(small("a", 1))
		if a.Status != 201 || a.Kept || string(a.Body) != "said 201" || a.ContentType != "text/plain" || took != 0 {
			t.Errorf("%+v after %v", a, took)
		}
		if n := r.s.Snapshot(); n.Kept != 0 || n.Fresh["delivered"] != 1 {
			t.Errorf("%+v", n)
		}
	})
}

// TestHangingReceiver: with a receiver that hangs, 100 deliveries in sequence
// are each answered 202 within 2 s, whatever the mode; afterwards every one
// arrives, each repository's in order, at most one of each at a time.
func TestHangingReceiver(t *testing.T) {
	for _, mode := range []Keep{KeepOverflow, KeepAlways} {
		t.Run(string(mode), func(t *testing.T) {
			bubble(t, HookConfig{Keep: mode, TryFor: Duration(time.Hour)}, hang, func(r *rig) {
				healthy := make(chan struct{})
				r.far.set(func(ctx context.Context, _, _ string) int {
					select {
					case <-healthy:
						return 200
					case <-ctx.Done():
						return 599
					}
				})
				for i := range 100 {
					a, took := r.accept(small(fmt.Sprintf("repo%d", i%20), i))
					if a.Status != 202 || !a.Kept || took > 2*time.Second {
						t.Fatalf("delivery %d: %+v after %v", i, a, took)
					}
				}
				r.pass(90 * time.Second)
				close(healthy)
				r.pass(20 * time.Minute)
				if n := r.inOrder(); n != 100 {
					t.Errorf("%d arrived", n)
				}
				if _, most := r.far.attempts(); most > DefaultPermits {
					t.Errorf("%d attempts at a time", most)
				}
				if n := r.s.Snapshot(); n.Due != 0 || n.Dead != 0 || n.Bytes != 0 {
					t.Errorf("left: %+v", n)
				}
			})
		})
	}
}

// TestLateAnswerSettles: an attempt that answers after the delivery was kept
// settles it, and it is not sent again.
func TestLateAnswerSettles(t *testing.T) {
	slow := func(context.Context, string, string) int { time.Sleep(30 * time.Second); return 200 }
	bubble(t, HookConfig{}, slow, func(r *rig) {
		a, took := r.accept(small("a", 1))
		if !a.Kept || took != DefaultFreshWait {
			t.Fatalf("%+v after %v", a, took)
		}
		r.pass(5 * time.Minute)
		if n, _ := r.far.attempts(); n != 1 || r.s.Snapshot().Due != 0 {
			t.Errorf("%d attempts, %+v", n, r.s.Snapshot())
		}
	})
}

// TestStormHoldsUpNobody: a storm of one repository and 20 deliveries of
// others behind it, receiver slow: the last of the others arrives before a
// twentieth of the storm.
func TestStormHoldsUpNobody(t *testing.T) {
	const storm = 2000
	slow := func(context.Context, string, string) int { time.Sleep(100 * time.Millisecond); return 200 }
	bubble(t, HookConfig{Keep: KeepAlways}, slow, func(r *rig) {
		for i := range storm {
			r.accept(small("storm", i))
		}
		for i := range 20 {
			r.accept(small(fmt.Sprintf("other%d", i), i))
		}
		r.pass(10 * time.Minute)
		got := r.far.bodies()
		before := 0
		last := slices.IndexFunc(got, func(string) bool { return false })
		for i, b := range got {
			if strings.HasPrefix(b, "other") {
				last = i
			}
		}
		for _, b := range got[:last+1] {
			if strings.HasPrefix(b, "storm") {
				before++
			}
		}
		if n := r.inOrder(); n != storm+20 || before > storm/20 {
			t.Errorf("%d arrived, %d of the storm before the last of the others", n, before)
		}
	})
}

// TestOutage: the receiver is away for an hour, far longer than a head may
// fail: nothing dies, all arrive in order, and at first one at a time.
func TestOutage(t *testing.T) {
	bubble(t, HookConfig{}, always(0), func(r *rig) {
		for i := range 60 {
			if a, _ := r.accept(small(fmt.Sprintf("repo%d", i%7), i)); a.Status != 202 {
				t.Fatalf("%+v", a)
			}
		}
		r.pass(time.Hour)
		n, _ := r.far.attempts()
		if n > 200 {
			t.Errorf("%d attempts in an hour at a receiver that is away", n)
		}
		herd := 0
		r.far.set(func(context.Context, string, string) int {
			if len(r.far.bodies()) == 0 {
				r.far.mu.Lock()
				herd = max(herd, r.far.running)
				r.far.mu.Unlock()
			}
			time.Sleep(10 * time.Millisecond)
			return 200
		})
		r.pass(2 * time.Minute)
		if n := r.inOrder(); n != 60 || herd != 1 {
			t.Errorf("%d arrived, the first among %d", n, herd)
		}
		var kinds []EventKind
		for _, e := range r.events.events() {
			kinds = append(kinds, e.Kind)
		}
		if !slices.Equal(kinds, []EventKind{EventDown, EventUp}) {
			t.Errorf("events %v", kinds)
		}
	})
}

// TestPoison: a delivery the receiver always fails on is set aside after its
// tries and the next of its repository goes; others are not held up; sending
// it again with the same id passes.
func TestPoison(t *testing.T) {
	answer := func(_ context.Context, _, body string) int {
		if body == "a-1" {
			return 500
		}
		return 200
	}
	bubble(t, HookConfig{}, answer, func(r *rig) {
		if a, _ := r.accept(small("a", 1)); a.Status != 202 || !a.Kept {
			t.Fatalf("%+v", a)
		}
		r.accept(small("a", 2))
		if a, took := r.accept(small("b", 1)); a.Status != 200 || took != 0 {
			t.Errorf("another repository: %+v after %v", a, took)
		}
		r.pass(20 * time.Minute)
		if want := []string{"b-1", "a-2"}; !slices.Equal(r.far.bodies(), want) {
			t.Errorf("arrived %v, want %v", r.far.bodies(), want)
		}
		dead := r.s.List(Filter{State: "dead"})
		if len(dead) != 1 || dead[0].Delivery != "a-1" || dead[0].Attempts != DefaultTries ||
			dead[0].Dead != string(DeadExhausted) || dead[0].Last != "status 500" || dead[0].Recovery == "" {
			t.Fatalf("%+v", dead)
		}
		r.far.set(always(200))
		if a, _ := r.accept(small("a", 1)); a.Status != 200 {
			t.Errorf("redelivery: %+v", a)
		}
		if n := r.s.Snapshot(); n.Dead != 0 || n.Revived != 1 {
			t.Errorf("%+v", n)
		}
	})
}

// TestRedeliveryRevivesKept: the same when the redelivery itself is kept.
func TestRedeliveryRevivesKept(t *testing.T) {
	bubble(t, HookConfig{Keep: KeepAlways}, always(400), func(r *rig) {
		r.accept(small("a", 1))
		r.pass(time.Second)
		if d := r.s.List(Filter{}); len(d) != 1 || d[0].Dead != string(DeadRefused) {
			t.Fatalf("%+v", d)
		}
		r.far.set(always(200))
		r.accept(small("a", 1))
		r.pass(time.Second)
		if d := r.s.List(Filter{}); len(d) != 0 || len(r.far.bodies()) != 1 {
			t.Fatalf("%+v %v", d, r.far.bodies())
		}
	})
}

// TestRefusalIsPassedOn: a receiver's final refusal of a fresh delivery goes
// to the sender; statuses on which senders disable hooks become 502.
func TestRefusalIsPassedOn(t *testing.T) {
	for status, want := range map[int]int{400: 400, 401: 401, 404: 502, 410: 502, 302: 302, 501: 501} {
		bubble(t, HookConfig{}, always(status), func(r *rig) {
			if a, _ := r.accept(small("a", 1)); a.Status != want || a.Kept {
				t.Errorf("%d: %+v, want %d", status, a, want)
			}
		})
	}
}

// TestOwnStatusTable: a hook's own rules go before the table.
func TestOwnStatusTable(t *testing.T) {
	c := HookConfig{Keep: KeepAlways, Status: map[string]Verdict{"500": Never, "4xx": Again, "409": Done}}
	bubble(t, c, func(_ context.Context, repo, _ string) int {
		return map[string]int{"a": 500, "b": 404, "c": 409}[repo]
	}, func(r *rig) {
		for _, repo := range []string{"a", "b", "c"} {
			r.accept(small(repo, 1))
		}
		r.pass(time.Second)
		states := map[string]string{}
		for _, it := range r.s.List(Filter{}) {
			states[it.Repository] = it.State + it.Dead
		}
		if len(states) != 2 || states["a"] != "deadrefused" || states["b"] != "waiting" {
			t.Errorf("%v", states)
		}
	})
}

// TestHangingRepositories: repositories that hang never hold every permit
// once they have failed: others are tried at once.
func TestHangingRepositories(t *testing.T) {
	answer := func(ctx context.Context, repo, body string) int {
		if strings.HasPrefix(repo, "hang") {
			return hang(ctx, repo, body)
		}
		return 200
	}
	bubble(t, HookConfig{Tries: 1000, TryFor: Duration(time.Hour)}, answer, func(r *rig) {
		for i := range 8 {
			r.accept(small(fmt.Sprintf("hang%d", i), 1))
		}
		r.pass(3 * time.Minute) // each has failed and is in repair
		for i := range 50 {
			if a, took := r.accept(small("good", i)); took > DefaultFreshWait || a.Status/100 != 2 {
				t.Fatalf("%+v after %v", a, took)
			}
			r.pass(time.Second)
			if n := len(r.far.bodies()); n != i+1 {
				t.Fatalf("%d of %d arrived while others hang", n, i+1)
			}
		}
	})
}

// TestSenderGone: a sender that leaves before the answer was promised
// nothing; its attempt ends by itself and its repository goes on.
func TestSenderGone(t *testing.T) {
	bubble(t, HookConfig{}, hang, func(r *rig) {
		ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := r.s.Accept(ctx, hookName, small("a", 1)); Reason(err) != "busy" {
			t.Fatalf("%v", err)
		}
		r.far.set(always(200))
		if a, _ := r.accept(small("a", 2)); !a.Kept {
			t.Fatalf("%+v: tried beside the first", a)
		}
		r.pass(2 * time.Minute)
		if got := r.far.bodies(); !slices.Equal(got, []string{"a-2"}) || r.s.Snapshot().Due != 0 {
			t.Errorf("%v %+v", got, r.s.Snapshot())
		}
	})
}

// TestOff: nothing is kept; the sender waits for the receiver.
func TestOff(t *testing.T) {
	bubble(t, HookConfig{Keep: KeepOff}, always(204), func(r *rig) {
		if a, _ := r.accept(small("a", 1)); a.Status != 204 || a.Kept {
			t.Errorf("%+v", a)
		}
		r.far.set(always(0))
		if _, err := r.s.Accept(r.Context(), hookName, small("a", 1)); Reason(err) != "upstream_failed" {
			t.Errorf("%v", err)
		}
		r.far.set(hang)
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if _, err := r.s.Accept(ctx, hookName, small("a", 1)); Reason(err) != "busy" {
			t.Errorf("%v", err)
		}
		if n := r.s.Snapshot(); n.Kept != 0 {
			t.Errorf("%+v", n)
		}
	})
}
