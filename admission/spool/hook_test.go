package spool

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
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

// TestDuplicates: the same id and bytes are one delivery while it is due, and
// another one afterwards; other bytes are another one.
func TestDuplicates(t *testing.T) {
	bubble(t, HookConfig{Keep: KeepAlways}, always(0), func(r *rig) {
		first, _ := r.accept(small("a", 1))
		again, _ := r.accept(small("a", 1))
		other := small("a", 1)
		other.Body = []byte("a-2")
		third, _ := r.accept(other)
		if first.ID != again.ID || third.ID == first.ID {
			t.Errorf("%v %v %v", first, again, third)
		}
		r.far.set(always(200))
		r.pass(time.Minute)
		if got := r.far.bodies(); !slices.Equal(got, []string{"a-1", "a-2"}) {
			t.Errorf("%v", got)
		}
		r.accept(small("a", 1)) // an operator's redelivery
		r.pass(time.Second)
		if got := r.far.bodies(); len(got) != 3 || r.s.Snapshot().Duplicates != 1 {
			t.Errorf("%v %+v", got, r.s.Snapshot())
		}
	})
}

// TestDuplicateOfRunningAttempt: the second of two equal deliveries at the
// same time shares the attempt of the first.
func TestDuplicateOfRunningAttempt(t *testing.T) {
	slow := func(context.Context, string, string) int { time.Sleep(500 * time.Millisecond); return 200 }
	bubble(t, HookConfig{}, slow, func(r *rig) {
		done := make(chan Answer)
		for range 2 {
			go func() {
				a, _ := r.accept(small("a", 1))
				done <- a
			}()
		}
		a, b := <-done, <-done
		if n, _ := r.far.attempts(); a.Status != 200 || b.Status != 200 || n != 1 {
			t.Errorf("%+v %+v %d", a, b, n)
		}
	})
}

// TestExpiry: a delivery with a signed time is not replayed after it, and is
// refused when it is over already.
func TestExpiry(t *testing.T) {
	bubble(t, HookConfig{}, always(0), func(r *rig) {
		d := small("a", 1)
		d.NotAfter = time.Now().Add(10 * time.Second) // before the first sweep
		r.accept(d)
		r.far.set(always(200))
		r.config.Name = "/other"
		if err := r.s.SetHooks([]HookConfig{r.config}); err != nil {
			t.Fatal(err)
		}
		r.pass(11 * time.Second)
		r.config.Name = hookName
		if err := r.s.SetHooks([]HookConfig{r.config}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if it := r.s.List(Filter{}); len(it) != 1 || it[0].Dead != string(DeadExpired) || len(r.far.bodies()) != 0 {
			t.Errorf("%+v", it)
		}
		late := small("a", 2)
		late.NotAfter = time.Now()
		if _, err := r.s.Accept(r.Context(), hookName, late); Reason(err) != "expired" {
			t.Errorf("%v", err)
		}
	})
}

// TestReloadKeepsDeliveries: a hook that the configuration drops keeps its
// deliveries, and delivers them when it is named again; so does a restart.
func TestReloadKeepsDeliveries(t *testing.T) {
	bubble(t, HookConfig{}, always(0), func(r *rig) {
		for i := range 5 {
			r.accept(small("a", i))
		}
		if err := r.s.SetHooks(nil); err != nil {
			t.Fatal(err)
		}
		if _, err := r.s.Accept(r.Context(), hookName, small("a", 9)); Reason(err) != "closed" {
			t.Errorf("%v", err)
		}
		r.far.set(always(200))
		r.pass(time.Hour)
		if n := r.s.Snapshot(); n.Due != 5 || len(r.far.bodies()) != 0 || n.Hooks[hookName].Active {
			t.Fatalf("%+v", n)
		}
		if err := r.s.Close(); err != nil {
			t.Fatal(err)
		}
		r.open()
		r.pass(time.Second)
		if n := r.inOrder(); n != 5 || r.s.Snapshot().Due != 0 {
			t.Errorf("%d arrived", n)
		}
	})
}

// TestCloseCountsNoFailure: an attempt that the end of the process cuts off
// is made again, with all its tries.
func TestCloseCountsNoFailure(t *testing.T) {
	bubble(t, HookConfig{Keep: KeepAlways}, hang, func(r *rig) {
		r.accept(small("a", 1))
		synctest.Wait()
		if err := r.s.Close(); err != nil {
			t.Fatal(err)
		}
		r.far.set(always(200))
		r.open()
		if it := r.s.List(Filter{}); len(it) > 0 && it[0].Attempts != 0 {
			t.Errorf("%+v", it)
		}
		r.pass(time.Second)
		if got := r.far.bodies(); len(got) != 1 {
			t.Errorf("%v", got)
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

// TestDiskFullWhileFresh: with no room on disk a delivery that the receiver
// takes in time is still delivered, another is refused and nothing is owed.
func TestDiskFullWhileFresh(t *testing.T) {
	slow := func(context.Context, string, string) int { time.Sleep(2 * time.Second); return 200 }
	bubble(t, HookConfig{}, slow, func(r *rig) {
		r.disk.fill(errNoSpace)
		if a, took := r.accept(small("a", 1)); a.Status != 200 || a.Kept || took != 2*time.Second {
			t.Errorf("%+v after %v", a, took)
		}
		r.far.set(hang)
		ctx, cancel := context.WithTimeout(r.Context(), 4*time.Second)
		defer cancel()
		_, err := r.s.Accept(ctx, hookName, small("a", 2))
		if Reason(err) != "disk" {
			t.Errorf("%v", err)
		}
		r.disk.fill(nil)
		r.pass(time.Minute)
		r.far.set(always(200))
		if a, _ := r.accept(small("a", 3)); a.Status != 200 {
			t.Errorf("%+v", a)
		}
	})
}

// holdOne takes everything but the deliveries of one repository, which keep
// the file they are in from leaving.
func holdOne(_ context.Context, repo, _ string) int {
	if repo == "hold" {
		return 500
	}
	return 200
}

// TestDeliveredWhileDiskFull: what was delivered while nothing could be noted
// is noted as soon as it can, and is not delivered again after a restart.
func TestDeliveredWhileDiskFull(t *testing.T) {
	bubble(t, HookConfig{Keep: KeepAlways}, always(0), func(r *rig) {
		for i := range 3 {
			r.accept(small("a", i))
		}
		r.accept(small("hold", 1))
		r.disk.fill(errNoSpace)
		r.far.set(holdOne)
		r.pass(time.Minute)
		if got := r.far.bodies(); len(got) != 3 || !r.s.Snapshot().DiskFailing {
			t.Fatalf("%v", got)
		}
		r.disk.fill(nil)
		r.pass(2 * flushEvery)
		r.restart()
		r.pass(time.Minute)
		if got := r.far.bodies(); len(got) != 3 {
			t.Errorf("delivered again: %v", got)
		}
	})
}

// TestNotesSurviveAFailedSync: the note of an answer that nobody waited for
// goes with a segment whose sync fails, and is written again.
func TestNotesSurviveAFailedSync(t *testing.T) {
	bubble(t, HookConfig{Keep: KeepAlways}, holdOne, func(r *rig) {
		r.accept(small("hold", 1))
		r.pass(2 * flushEvery)
		r.accept(small("a", 1))
		r.pass(time.Millisecond) // delivered; the note is written and not synced
		if n := r.s.Snapshot().Due; n != 1 {
			t.Fatalf("%d due", n)
		}
		r.disk.failNext("sync", syscall.EIO)
		if _, err := r.s.Accept(r.Context(), hookName, small("b", 1)); Reason(err) != "disk" {
			t.Fatalf("%v", err)
		}
		if _, err := r.s.Accept(r.Context(), hookName, small("b", 1)); err != nil {
			t.Fatal(err)
		}
		r.pass(2 * flushEvery)
		r.restart()
		r.pass(time.Minute)
		if got := r.far.bodies(); !slices.Equal(got, []string{"a-1", "b-1"}) {
			t.Errorf("%v", got)
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

// TestSecretsStayOffTheDisk: what is a credential is on the disk only sealed
// or not at all, and every attempt still carries it.
func TestSecretsStayOffTheDisk(t *testing.T) {
	c := HookConfig{
		Keep: KeepAlways, SecretHeaders: []string{"x-custom-token"}, Headers: []string{"x-team"},
		Restore: map[string]string{"X-Gitlab-Token": "configured-secret"},
	}
	bubble(t, c, always(0), func(r *rig) {
		d := small("a", 1)
		d.Query = "access_token=query-secret"
		d.Header["Authorization"] = []string{"Basic authorization-secret"}
		d.Header["X-Gitlab-Token"] = []string{"configured-secret"}
		d.Header["X-Custom-Token"] = []string{"custom-secret"}
		d.Header["X-Hub-Signature-256"] = []string{"sha256=signature-secret"}
		d.Header["Cookie"] = []string{"cookie-secret"}
		d.Header["X-Team"] = []string{"blue"}
		a, _ := r.accept(d)
		shown, err := r.s.Show(a.ID, true)
		if err != nil || !shown.Sealed {
			t.Fatalf("%+v %v", shown, err)
		}
		text := fmt.Sprintf("%+v", shown)
		for name, f := range r.disk.names {
			text += name + string(f.data)
		}
		if i := strings.Index(text, "secret"); i >= 0 {
			t.Errorf("a secret is readable: …%q", text[max(0, i-40):i+10])
		}
		r.far.set(always(200))
		r.pass(time.Minute)
		h, query := r.far.last()
		want := http.Header{
			"Authorization": d.Header["Authorization"], "X-Gitlab-Token": d.Header["X-Gitlab-Token"],
			"X-Custom-Token": d.Header["X-Custom-Token"], "X-Team": d.Header["X-Team"], "Cookie": nil,
			"X-Hub-Signature-256": d.Header["X-Hub-Signature-256"],
			"X-Github-Event":      d.Header["X-Github-Event"],
		}
		for name, v := range want {
			if !slices.Equal(h[name], v) {
				t.Errorf("%s: %q, want %q", name, h[name], v)
			}
		}
		if query != d.Query {
			t.Errorf("query %q", query)
		}
	})
}

// TestLostKey: deliveries whose credentials cannot be opened are set aside;
// others are delivered.
func TestLostKey(t *testing.T) {
	bubble(t, HookConfig{Keep: KeepAlways}, always(0), func(r *rig) {
		d := small("a", 1)
		d.Query = "token=x"
		r.accept(d)
		r.accept(small("a", 2))
		if err := r.s.Close(); err != nil {
			t.Fatal(err)
		}
		delete(r.disk.names, "/spool/key")
		r.far.set(always(200))
		r.open()
		r.pass(time.Minute)
		it := r.s.List(Filter{})
		if len(it) != 1 || it[0].Dead != string(DeadNoKey) || !slices.Equal(r.far.bodies(), []string{"a-2"}) {
			t.Errorf("%+v %v", it, r.far.bodies())
		}
	})
}
