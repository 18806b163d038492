package caddymodule

import (
	"context"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-admission/gateway/admission/spool"
)

// planned is a plan with one hook whose receiver cannot be reached.
func planned(dir string, change func(*spool.Config)) *spoolPlan {
	p := &spoolPlan{config: spool.Config{Dir: dir}, hooks: []spool.HookConfig{{Name: "/hook", Deliver: "http://127.0.0.1:1/", Keep: spool.KeepAlways}}}
	if change != nil {
		change(&p.config)
	}
	return p
}

// keepOne takes one delivery through a pool's keeper.
func keepOne(t *testing.T, s *spools, pool, id string) {
	t.Helper()
	a, err := s.byPool[pool].accept(context.Background(), "/hook", spool.KeepAlways, &spool.Delivery{ID: id, Repository: "r", Body: []byte(id)})
	if err != nil || a.Status != http.StatusAccepted {
		t.Fatalf("%s: %+v %v", id, a, err)
	}
}

func ids(sp *spool.Spool) (list []string) {
	for _, it := range sp.List(spool.Filter{}) {
		list = append(list, it.Delivery)
	}
	return list
}

// TestSpoolOfARenamedPool: the directory goes on under the pool's new name,
// and is closed with the last configuration that names it.
func TestSpoolOfARenamedPool(t *testing.T) {
	s, dir := newSpools(), filepath.Join(t.TempDir(), "a")
	first, second := &generation{id: 1}, &generation{id: 2}
	if err := s.start(first, map[string]*spoolPlan{"old": planned(dir, nil)}); err != nil {
		t.Fatal(err)
	}
	keepOne(t, s, "old", "1")
	if err := s.start(second, map[string]*spoolPlan{"new": planned(dir, nil)}); err != nil {
		t.Fatal(err)
	}
	s.stop(first)
	s.release(first)
	keepOne(t, s, "new", "2")
	if l := s.list(); len(l) != 1 || l[0].pool != "new" || !slices.Equal(ids(l[0].sp), []string{"1", "2"}) {
		t.Errorf("%+v", l)
	}
	s.stop(second)
	s.release(second)
	again, err := spool.Open(spool.Config{Dir: dir})
	if err != nil {
		t.Fatalf("still open: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// TestSpoolsAreNotExchanged: two pools cannot swap directories in one step.
func TestSpoolsAreNotExchanged(t *testing.T) {
	s, a, b := newSpools(), filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	first, second := &generation{id: 1}, &generation{id: 2}
	if err := s.start(first, map[string]*spoolPlan{"x": planned(a, nil), "y": planned(b, nil)}); err != nil {
		t.Fatal(err)
	}
	err := s.start(second, map[string]*spoolPlan{"x": planned(b, nil), "y": planned(a, nil)})
	if err == nil || !strings.Contains(err.Error(), "still keeps") {
		t.Errorf("%v", err)
	}
	s.release(second)
	s.release(first)
}

// TestMoveThatCannotBeDone: what does not fit stays in use where it is, new
// deliveries are taken there, and the next configuration takes all of it.
func TestMoveThatCannotBeDone(t *testing.T) {
	s := newSpools()
	dir := func(name string) string { return filepath.Join(t.TempDir(), name) }
	a, small, large := dir("a"), dir("small"), dir("large")
	gens := []*generation{{id: 1}, {id: 2}, {id: 3}}
	if err := s.start(gens[0], map[string]*spoolPlan{"p": planned(a, nil)}); err != nil {
		t.Fatal(err)
	}
	want := []string{"1", "2", "3"}
	for _, id := range want {
		keepOne(t, s, "p", id)
	}
	if err := s.start(gens[1], map[string]*spoolPlan{"p": planned(small, func(c *spool.Config) { c.MaxCount = 2 })}); err != nil {
		t.Fatal(err)
	}
	s.stop(gens[0])
	s.release(gens[0])
	keepOne(t, s, "p", "4")
	if err := s.start(gens[2], map[string]*spoolPlan{"p": planned(large, nil)}); err != nil {
		t.Fatal(err)
	}
	s.stop(gens[1])
	s.release(gens[1])
	waitFor(t, "the move", func() bool { l := s.list(); return l[0].sp.Dir() == large && !l[0].moving })
	keepOne(t, s, "p", "5")
	if got := ids(s.list()[0].sp); !slices.Equal(got, []string{"1", "2", "3", "4", "5"}) {
		t.Errorf("%v", got)
	}
	s.stop(gens[2])
	s.release(gens[2])
}
