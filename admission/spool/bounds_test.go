package spool

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestBounds: at each bound a typed error, nothing dropped, and room again
// once something went.
func TestBounds(t *testing.T) {
	for _, test := range []struct {
		bound Bound
		set   func(*Config)
		repo  func(i int) string
		fits  int
	}{
		{BoundCount, func(c *Config) { c.MaxCount = 10; c.RepositoryShare = 1 }, oneRepo, 10},
		{BoundRepository, func(c *Config) { c.MaxCount = 50 }, oneRepo, 45},
		{BoundRepository, func(c *Config) { c.MaxBytes = 1 << 20; c.RepositoryShare = 0.1 }, oneRepo, 8},
		{BoundBytes, func(c *Config) { c.MaxBytes = 1 << 20 }, eachRepo, 85},
	} {
		t.Run(string(test.bound), func(t *testing.T) {
			c := memConfig(newMemDisk())
			test.set(&c)
			s := open(t, c)
			put := func(i int) error {
				d := testDelivery(test.repo(i), i)
				d.Body = make([]byte, 11<<10+700)
				_, err := s.Keep(context.Background(), "/hook", d)
				return err
			}
			n := 0
			var err error
			for ; n < 1000 && err == nil; n++ {
				err = put(n)
			}
			var full *FullError
			if !errors.As(err, &full) || full.Bound != test.bound || Reason(err) != "spool_full" || n-1 != test.fits {
				t.Fatalf("after %d: %v", n-1, err)
			}
			items := s.List(Filter{})
			if len(items) != n-1 {
				t.Fatalf("%d of %d are left", len(items), n-1)
			}
			if err := s.Drop(context.Background(), items[0].ID); err != nil {
				t.Fatal(err)
			}
			if err := put(2000); err != nil {
				t.Errorf("with room again: %v", err)
			}
			if got := s.Snapshot(); got.Refused["spool_full"] != 1 || got.Bytes > got.MaxBytes {
				t.Errorf("%+v", got)
			}
		})
	}
}

func oneRepo(int) string    { return "a" }
func eachRepo(i int) string { return fmt.Sprint("repo", i) }

// TestShareLeavesRoom: a repository that fills its share leaves a tenth of
// the room, the next a tenth of that.
func TestShareLeavesRoom(t *testing.T) {
	c := memConfig(newMemDisk())
	c.MaxCount = 1000
	s := open(t, c)
	for storm, want := range []int{900, 90, 9} {
		for n := range 1100 {
			if _, err := s.Keep(context.Background(), "/hook", testDelivery(eachRepo(storm), n)); err != nil {
				if n != want || !is[*FullError](err) {
					t.Errorf("storm %d kept %d: %v", storm, n, err)
				}
				break
			}
		}
	}
	if _, err := s.Keep(context.Background(), "/hook", testDelivery("another", 1)); err != nil {
		t.Error(err)
	}
}

// TestDeadGiveWay: at a bound the oldest dead delivery goes for a new one,
// counted; what is due never does.
func TestDeadGiveWay(t *testing.T) {
	bubble(t, HookConfig{Keep: KeepAlways}, always(400), func(r *rig) {
		r.s.SetLimits(Config{MaxCount: 3, RepositoryShare: 1})
		for i := range 3 {
			r.accept(small(eachRepo(i), i))
			r.pass(time.Second)
		}
		r.far.set(hang)
		r.accept(small("fresh", 3))
		left := map[string]string{}
		for _, it := range r.s.List(Filter{}) {
			left[it.Repository] = it.State
		}
		if len(left) != 3 || left["repo0"] != "" || left["fresh"] == "" || r.s.Snapshot().Dropped[string(DropGaveWay)] != 1 {
			t.Errorf("%v %+v", left, r.s.Snapshot().Dropped)
		}
		r.accept(small("fresh", 4))
		r.accept(small("fresh", 5))
		if _, err := r.s.Accept(r.Context(), hookName, small("fresh", 6)); Reason(err) != "spool_full" {
			t.Errorf("%v", err)
		}
	})
}

// TestAges: what is undelivered for MaxAge is set aside, what was dead for
// MaxAge goes; both are told.
func TestAges(t *testing.T) {
	bubble(t, HookConfig{}, always(0), func(r *rig) {
		r.accept(small("a", 1))
		r.pass(DefaultMaxAge - time.Hour)
		if it := r.s.List(Filter{}); len(it) != 1 || it[0].State == "dead" {
			t.Fatalf("%+v", it)
		}
		if old := r.s.Snapshot().Oldest; old < 70*3600 {
			t.Errorf("oldest %v", old)
		}
		r.pass(2 * time.Hour)
		it := r.s.List(Filter{})
		if len(it) != 1 || it[0].Dead != string(DeadTooOld) {
			t.Fatalf("%+v", it)
		}
		if err := r.s.Replay(r.Context(), it[0].ID); err != nil { // its age starts again
			t.Fatal(err)
		}
		r.pass(time.Hour)
		if it := r.s.List(Filter{}); len(it) != 1 || it[0].State == "dead" {
			t.Fatalf("%+v", it)
		}
		r.pass(2 * DefaultMaxAge)
		if it := r.s.List(Filter{}); len(it) != 0 {
			t.Errorf("%+v", it)
		}
		events := r.events.events()
		last := events[len(events)-1]
		if last.Kind != EventDropped || last.Reason != string(DropAged) {
			t.Errorf("%+v", last)
		}
	})
}

// TestFilesShrink: with most of a large backlog delivered, the files hold at
// most twice what is kept and a few segments, and nothing is lost on the way.
func TestFilesShrink(t *testing.T) {
	disk := newMemDisk()
	c := memConfig(disk)
	s := open(t, c)
	for i := range 300 {
		if _, err := s.Keep(context.Background(), "/hook", memDelivery(eachRepo(i), i)); err != nil {
			t.Fatal(err)
		}
	}
	for i, it := range s.List(Filter{}) {
		if i%10 != 0 {
			if err := s.Drop(context.Background(), it.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := s.Keep(context.Background(), "/hook", memDelivery("last", 1)); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	s = open(t, c)
	got := s.Snapshot()
	if got.DiskBytes > 2*got.Bytes+4*c.SegmentBytes+joinBody {
		t.Errorf("%d bytes kept in %d", got.Bytes, got.DiskBytes)
	}
	if n := deliveries(s); len(n) != 31 {
		t.Errorf("%d left", len(n))
	}
	for _, it := range s.List(Filter{}) {
		if _, err := s.Show(it.ID, true); err != nil {
			t.Error(err)
		}
	}
}

// TestReplayAndDrop: what an operator does is durable when it returns.
func TestReplayAndDrop(t *testing.T) {
	bubble(t, HookConfig{Keep: KeepAlways}, always(400), func(r *rig) {
		for i := range 2 {
			r.accept(small("a", i))
		}
		r.pass(time.Second)
		dead := r.s.List(Filter{State: "dead"})
		if len(dead) != 2 {
			t.Fatalf("%+v", dead)
		}
		r.far.set(always(0))
		if err := r.s.Replay(r.Context(), dead[0].ID); err != nil {
			t.Fatal(err)
		}
		if err := r.s.Drop(r.Context(), dead[1].ID); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"9999", "x", ""} {
			if err := r.s.Replay(r.Context(), id); !errors.Is(err, ErrNotFound) {
				t.Errorf("%q: %v", id, err)
			}
			if err := r.s.Drop(r.Context(), id); !errors.Is(err, ErrNotFound) {
				t.Errorf("%q: %v", id, err)
			}
		}
		_ = r.s.Close()
		r.far.set(always(200))
		r.open()
		r.pass(time.Minute)
		if got := r.far.bodies(); len(got) != 1 || got[0] != "a-0" {
			t.Errorf("%v", got)
		}
	})
}
