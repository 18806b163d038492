package spool

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

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

// TestRepeatedOntoDamage: a delivery that is sent again is not taken for one
// that can no longer be delivered as it was accepted.
func TestRepeatedOntoDamage(t *testing.T) {
	for _, damage := range []string{"body", "key"} {
		bubble(t, HookConfig{Keep: KeepAlways}, always(0), func(r *rig) {
			d := small("a", 1)
			d.Query = "token=x"
			first, _ := r.accept(d)
			if err := r.s.Close(); err != nil {
				t.Fatal(err)
			}
			r.open() // a new file: the damaged one is not the newest
			r.accept(small("b", 1))
			if damage == "body" {
				f := r.disk.file(segmentSuffix, 0)
				f.data[len(f.data)-1] ^= 1
			} else {
				_ = r.s.Close()
				delete(r.disk.names, "/spool/key")
				r.open()
			}
			again, _ := r.accept(d)
			if again.ID == first.ID {
				t.Errorf("%s: taken for the damaged one", damage)
			}
			r.far.set(always(200))
			r.pass(time.Minute)
			if got := r.far.bodies(); !slices.Contains(got, "a-1") {
				t.Errorf("%s: arrived %v", damage, got)
			}
		})
	}
}
