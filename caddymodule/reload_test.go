package caddymodule

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-admission/gateway/admission"
)

func policyOf(t *testing.T, total int) *admission.Policy {
	t.Helper()
	p, problems := admission.Config{Total: total}.Compile()
	if p == nil {
		t.Fatal(problems)
	}
	return p
}

// TestGenerationsStack: the newest started generation's limits hold; its stop
// gives them back; a generation that never started changes nothing.
func TestGenerationsStack(t *testing.T) {
	r := newRegistry()
	gens := []*generation{{id: 1}, {id: 2}, {id: 3}}
	totals := []int{10, 20, 30}
	total := func() int { return r.list()[0].state.Controller.Policy().Total }
	begin := func(i int) {
		r.acquire(gens[i], "p", policyOf(t, totals[i]))
		r.start(gens[i], map[string]*admission.Policy{"p": policyOf(t, totals[i])})
	}
	want := func(step string, n int) {
		t.Helper()
		if got := total(); got != n {
			t.Errorf("%s: total %d, want %d", step, got, n)
		}
	}

	r.acquire(gens[0], "p", policyOf(t, totals[0]))
	want("first owner, before its start", 10)
	r.acquire(gens[1], "p", policyOf(t, totals[1]))
	want("second generation refers to it", 10)
	begin(0)
	begin(1)
	want("second started", 20)
	begin(2)
	want("third started", 30)
	r.stop(gens[1])
	want("second stopped below the third", 30)
	r.stop(gens[2])
	want("third stopped", 10)
	r.stop(gens[2])
	r.release(gens[2])
	want("third released", 10)
	r.release(gens[1])
	r.release(gens[0])
	if n := len(r.list()); n != 0 {
		t.Errorf("%d pools left that nobody names", n)
	}
}

// TestPoolStaysWhileHeld: a pool that no generation names any more stays until
// its last permit ends, and who names it again finds the permit.
func TestPoolStaysWhileHeld(t *testing.T) {
	r := newRegistry()
	old := &generation{id: 1}
	c := r.acquire(old, "p", policyOf(t, 10)).Controller
	permit, refusal := c.TryAdmit(&admission.Request{Class: admission.Push})
	if refusal != nil {
		t.Fatal(refusal.Reason)
	}
	r.release(old)
	if l := r.list(); len(l) != 1 || l[0].active {
		t.Fatalf("pools after the release: %+v", l)
	}
	again := &generation{id: 2}
	if r.acquire(again, "p", policyOf(t, 10)).Controller != c {
		t.Error("a new state forgets what is in flight")
	}
	r.release(again)
	permit.End(admission.OutcomeCompleted)
	if n := len(r.list()); n != 0 {
		t.Errorf("%d pools left after the last permit", n)
	}
}

// TestRejectedConfiguration: a configuration that fails to provision, that
// fails to start, or that is only validated changes no limit and adds no pool.
func TestRejectedConfiguration(t *testing.T) {
	g := newGitServer()
	s := start(t, "admission kept {\n total 40\n }\n test_upstream", g.serve)
	const next = "admission kept {\n total 20\n }\n admission /x/* added\n test_upstream"
	check := func(t *testing.T) {
		t.Helper()
		if n := pool(t, "kept").Total.Max; n != 40 {
			t.Errorf("total is %d, want 40", n)
		}
		if _, ok := currentState(process).Pools["added"]; ok {
			t.Error("a pool of the rejected configuration is there")
		}
		if r, _ := s.do(ask{path: readRefs, from: "192.0.2.7"}); r.StatusCode != http.StatusOK {
			t.Errorf("a request afterwards: %d", r.StatusCode)
		}
	}
	t.Run("provision fails", func(t *testing.T) {
		probed := 0
		onProbe = func() { probed = pool(t, "kept").Total.Max }
		err := s.load(next + "\n test_probe")
		if err == nil || !strings.Contains(err.Error(), "provision refused by the test") {
			t.Fatal(err)
		}
		if probed != 40 {
			t.Errorf("total was %d while the configuration was provisioned, want 40", probed)
		}
		check(t)
	})
	t.Run("start fails", func(t *testing.T) {
		for range 6 { // apps start in random order
			err := caddy.Load(s.json(next, func(all map[string]any) {
				all["apps"].(map[string]any)["admission_test_failing"] = map[string]any{}
			}), true)
			if err == nil || !strings.Contains(err.Error(), "start refused by the test") {
				t.Fatal(err)
			}
			check(t)
		}
	})
	t.Run("validated", func(t *testing.T) {
		var cfg caddy.Config
		if err := caddy.StrictUnmarshalJSON(s.json(next, nil), &cfg); err != nil {
			t.Fatal(err)
		}
		if err := caddy.Validate(&cfg); err != nil {
			t.Fatal(err)
		}
		check(t)
	})
	t.Run("loads in the end", func(t *testing.T) {
		if err := s.load(next); err != nil {
			t.Fatal(err)
		}
		if n := pool(t, "kept").Total.Max; n != 20 {
			t.Errorf("total is %d, want 20", n)
		}
	})
}

// TestReloadCarriesOver: what is in flight and what was counted outlives a
// reload, and the new limit counts what the old configuration admitted.
func TestReloadCarriesOver(t *testing.T) {
	g := newGitServer()
	s := start(t, "admission carried {\n total 5\n wait off\n }\n test_upstream", g.serve)
	release := s.holdAnonymous(g, "198.51.100.1")
	if err := s.load("admission carried {\n total 8\n wait off\n class anonymous {\n max 1\n }\n }\n test_upstream"); err != nil {
		t.Fatal(err)
	}
	p := pool(t, "carried")
	if p.Total.Max != 8 || p.Classes["anonymous"].InUse != 1 || p.Classes["anonymous"].Decisions["admitted"] != 1 {
		t.Errorf("after the reload: total %d, %+v", p.Total.Max, p.Classes["anonymous"])
	}
	if r, _ := s.do(ask{method: http.MethodPost, path: readRPC, body: "0000", from: "198.51.100.2"}); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a second anonymous fetch beside the carried one: %d, want 503", r.StatusCode)
	}
	release()
	if n := in(t, "carried", admission.Anonymous); n != 0 {
		t.Errorf("anonymous holds %d permits after the end, want 0", n)
	}
	if r, _ := s.do(ask{method: http.MethodPost, path: readRPC, body: "0000", from: "198.51.100.2"}); r.StatusCode != http.StatusOK {
		t.Errorf("with the place free: %d", r.StatusCode)
	}
}

// TestRemovedAndAddedAgain: a pool that one reload removes and the next adds
// knows what is still in flight.
func TestRemovedAndAddedAgain(t *testing.T) {
	g := newGitServer()
	const site = "admission comes_back {\n total 5\n wait off\n class anonymous {\n max 1\n }\n }\n test_upstream"
	s := start(t, site, g.serve)
	release := s.holdAnonymous(g, "198.51.100.1")
	for _, next := range []string{"admission another\n test_upstream", site} {
		if err := s.load(next); err != nil {
			t.Fatal(err)
		}
	}
	if n := in(t, "comes_back", admission.Anonymous); n != 1 {
		t.Errorf("anonymous holds %d permits, want the carried 1", n)
	}
	release()
	if n := in(t, "comes_back", admission.Anonymous); n != 0 {
		t.Errorf("anonymous holds %d permits after the end", n)
	}
	if _, ok := currentState(process).Pools["another"]; ok {
		t.Error("a pool that nobody names is still there")
	}
}

// TestShutdown: the end of the process refuses at once whatever waits in the
// pools of its generation, and only there.
func TestShutdown(t *testing.T) {
	r := newRegistry()
	ending, other := &generation{id: 1}, &generation{id: 2}
	a := r.acquire(ending, "ending", policyOf(t, 10)).Controller
	b := r.acquire(other, "other", policyOf(t, 10)).Controller
	r.shutdown(ending)
	if _, refusal := a.TryAdmit(&admission.Request{Class: admission.Push}); refusal == nil || refusal.Reason != admission.ReasonShutdown {
		t.Errorf("refusal %+v, want shutdown", refusal)
	}
	permit, refusal := b.TryAdmit(&admission.Request{Class: admission.Push})
	if refusal != nil {
		t.Errorf("the other pool refuses: %v", refusal.Reason)
	}
	permit.End(admission.OutcomeCompleted)
}
