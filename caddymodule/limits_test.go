package caddymodule

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/internal/adminapi"
)

// limits asks the admin endpoint's handler.
func limits(t *testing.T, method, pool, body string) (adminapi.Limits, error) {
	t.Helper()
	w := httptest.NewRecorder()
	err := serveLimits(w, httptest.NewRequest(method, adminapi.LimitsPath+pool, strings.NewReader(body)))
	var l adminapi.Limits
	if err == nil {
		if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
	}
	return l, err
}

func mustChange(t *testing.T, pool, patch string) adminapi.Limits {
	t.Helper()
	l, err := limits(t, http.MethodPatch, pool, patch)
	if err != nil || !l.Changed {
		t.Fatalf("%+v %v", l, err)
	}
	return l
}

// TestLimitsChangeWithoutAReload: what is in flight counts against the new limit
// at once, changes add up, and nothing is reloaded.
func TestLimitsChangeWithoutAReload(t *testing.T) {
	g := newGitServer()
	s := start(t, "admission tuned {\n total 8\n wait off\n webhooks {\n permits 3\n }\n }\n test_upstream", g.serve)
	before := caddy.ActiveContext()
	release := s.holdAnonymous(g, "198.51.100.1")
	fetch := ask{method: http.MethodPost, path: "/priv.git/git-upload-pack", body: "0000", from: "198.51.100.2"}
	const passed = http.StatusUnauthorized // the server's own answer
	if r, _ := s.do(fetch); r.StatusCode != passed {
		t.Fatal(r.StatusCode)
	}
	mustChange(t, "tuned", `{"classes":{"anonymous":{"max":1}}}`)
	if r, _ := s.do(fetch); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%d beside the one that the new limit leaves, want 503", r.StatusCode)
	}
	l := mustChange(t, "tuned", `{"dry_run":true,"webhooks":{"permits":5}}`)
	if text := string(l.Limits); !strings.Contains(text, `"max":1`) || !strings.Contains(text, `"dry_run":true`) || !strings.Contains(text, `"total":8`) {
		t.Errorf("limits %s", text)
	}
	if r, _ := s.do(fetch); r.StatusCode != passed {
		t.Errorf("%d in dry run", r.StatusCode)
	}
	p := pool(t, "tuned")
	if c := p.Classes["anonymous"]; !p.LimitsChanged || c.InUse != 1 || c.Max != 1 || c.Decisions["would_refuse"] != 1 || p.Classes["webhook"].Max != 5 {
		t.Errorf("state %v %+v", p.LimitsChanged, c)
	}
	mustChange(t, "tuned", `{"dry_run":null,"classes":{"anonymous":{"max":null}}}`)
	if r, _ := s.do(fetch); r.StatusCode != passed {
		t.Errorf("%d with the default again", r.StatusCode)
	}
	release()
	if caddy.ActiveContext().Context != before.Context {
		t.Error("a configuration was loaded")
	}
}

// TestWrongLimitsChangeNothing: they are checked as a whole, as a file is.
func TestWrongLimitsChangeNothing(t *testing.T) {
	s := start(t, "admission strict {\n total 40\n }\n test_upstream", newGitServer().serve)
	_ = s
	for patch, want := range map[string][]string{
		`{"total":3,"classes":{"push":{"max":-1},"psuh":{"max":1}}}`: {"class push max", "psuh", "class push reserve"},
		`{"total":"many"}`:            {"total"},
		`{"forge":"gitea"}`:           {"forge"},
		`[1]`:                         {"allowed: an object"},
		`{"webhooks":{"permits":40}}`: {"class webhook max"},
		`{`:                           {"limits of strict"},
	} {
		_, err := limits(t, http.MethodPatch, "strict", patch)
		api, ok := err.(caddy.APIError)
		if !ok || api.HTTPStatus != http.StatusBadRequest {
			t.Errorf("%s: %v", patch, err)
			continue
		}
		for _, part := range want {
			if !strings.Contains(api.Err.Error(), part) {
				t.Errorf("%s: %v does not mention %q", patch, api.Err, part)
			}
		}
	}
	if p := pool(t, "strict"); p.Total.Max != 40 || p.LimitsChanged {
		t.Errorf("total %d, changed %v", p.Total.Max, p.LimitsChanged)
	}
	if _, err := limits(t, http.MethodGet, "nobody", ""); err == nil {
		t.Error("limits of a pool that nobody names")
	}
	if _, err := limits(t, http.MethodPost, "strict", "{}"); err == nil {
		t.Error("POST was accepted")
	}
}

// TestReloadAndChangedLimits: a configuration that starts is the truth again; one
// that is rejected, before or after its start, leaves what was changed.
func TestReloadAndChangedLimits(t *testing.T) {
	s := start(t, "admission both {\n total 40\n }\n test_upstream", newGitServer().serve)
	total := func(step string, want int, changed bool) {
		t.Helper()
		if p := pool(t, "both"); p.Total.Max != want || p.LimitsChanged != changed {
			t.Errorf("%s: total %d, changed %v; want %d, %v", step, p.Total.Max, p.LimitsChanged, want, changed)
		}
	}
	mustChange(t, "both", `{"total":20}`)
	total("changed", 20, true)
	onProbe = func() {}
	if s.load("admission both {\n total 30\n }\n test_upstream\n test_probe") == nil {
		t.Fatal("accepted")
	}
	total("provision failed", 20, true)
	for range 6 { // apps start in random order
		_ = caddy.Load(s.json("admission both {\n total 30\n }\n test_upstream", func(all map[string]any) {
			all["apps"].(map[string]any)["admission_test_failing"] = map[string]any{}
		}), true)
		total("start failed", 20, true)
	}
	if err := s.load("admission both {\n total 30\n }\n test_upstream"); err != nil {
		t.Fatal(err)
	}
	total("loaded", 30, false)
	mustChange(t, "both", `{"total":50}`)
	if l, err := limits(t, http.MethodDelete, "both", ""); err != nil || l.Changed {
		t.Fatalf("%+v %v", l, err)
	}
	total("taken back", 30, false)
}

// A generation that is not the newest changes nothing.
func TestOnlyTheNewestGenerationChangesLimits(t *testing.T) {
	r := newRegistry()
	old, next := &generation{id: 1}, &generation{id: 2}
	for i, gen := range []*generation{old, next} {
		p := policyOf(t, 10*(i+1))
		r.acquire(gen, "p", p)
		r.start(gen, map[string]*admission.Policy{"p": p})
	}
	if r.change(old, "p", policyOf(t, 99), true) || r.list()[0].state.Controller.Policy().Total != 20 {
		t.Error("the older generation changed the limits of the newer")
	}
	if !r.change(next, "p", policyOf(t, 30), true) || r.list()[0].state.Controller.Policy().Total != 30 {
		t.Error("the newest generation could not change its limits")
	}
}
