package spool

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// TestAdopt: a reload that moves the spool takes along what is kept, dead
// ones and credentials included, and order holds.
func TestAdopt(t *testing.T) {
	bubble(t, HookConfig{Keep: KeepAlways}, always(400), func(r *rig) {
		r.accept(small("a", 1))
		r.pass(time.Second)
		r.far.set(always(0))
		secret := small("a", 2)
		secret.Query = "token=secret"
		r.accept(secret)
		r.accept(small("a", 3))
		if err := r.s.SetHooks(nil); err != nil {
			t.Fatal(err)
		}
		c := memConfig(r.disk)
		c.Dir = "/moved"
		old := r.s
		s, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		r.s = s // the bubble closes it
		if n, err := s.Adopt(r.Context(), old); n != 3 || err != nil {
			t.Fatalf("%d %v", n, err)
		}
		if got := old.Snapshot(); got.Due+got.Dead != 0 || got.Dropped[string(DropMoved)] != 3 {
			t.Errorf("%+v", got)
		}
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
		if it := s.List(Filter{State: "dead"}); len(it) != 1 || it[0].Dead != string(DeadRefused) {
			t.Errorf("%+v", it)
		}
		r.far.set(always(200))
		if err := s.SetHooks([]HookConfig{r.config}); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Minute)
		if got := r.far.bodies(); !slices.Equal(got, []string{"a-2", "a-3"}) || !slices.Contains(r.far.queries, secret.Query) {
			t.Errorf("%v", got)
		}
	})
}

// TestAdoptIntoAFullSpool: nothing moves when not everything fits, and
// everything does although one repository holds it all.
func TestAdoptIntoAFullSpool(t *testing.T) {
	disk := fill(t, 5, 1<<20)
	from := open(t, memConfig(disk))
	c := memConfig(disk)
	c.Dir, c.MaxCount, c.RepositoryShare = "/small", 4, 0.1
	to := open(t, c)
	n, err := to.Adopt(context.Background(), from)
	if n != 0 || !is[*FullError](err) || len(from.List(Filter{})) != 5 || len(to.List(Filter{})) != 0 {
		t.Errorf("%d %v", n, err)
	}
	c.MaxCount = 5
	to.SetLimits(c)
	if n, err := to.Adopt(context.Background(), from); n != 5 || err != nil || len(from.List(Filter{})) != 0 {
		t.Errorf("with room: %d %v", n, err)
	}
}

// TestUse: two configurations of one process share a spool, the last closes
// it.
func TestUse(t *testing.T) {
	c := testConfig(t)
	a, releaseA, err := Use(c)
	if err != nil {
		t.Fatal(err)
	}
	b, releaseB, err := Use(c)
	if err != nil || a != b {
		t.Fatalf("%p %p %v", a, b, err)
	}
	_ = releaseA()
	_ = releaseA()
	if _, err := a.Keep(context.Background(), "/hook", testDelivery("a", 1)); err != nil {
		t.Errorf("still in use: %v", err)
	}
	if err := releaseB(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Keep(context.Background(), "/hook", testDelivery("a", 2)); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	s, release, err := Use(c)
	if err != nil || len(s.List(Filter{})) != 1 {
		t.Fatalf("%v", err)
	}
	_ = release()
}
