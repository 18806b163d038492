package spool

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"
)

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
