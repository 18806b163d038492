package caddymodule

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/gate"
	"github.com/caddy-admission/gateway/admission/spool"
)

// labelValues are the only values a label may have, beside pool names.
func labelValues() map[string][]string {
	var classes, outcomes, hooks []string
	for c := range admission.NumClasses {
		classes = append(classes, c.String())
	}
	for d := range admission.NumDecisions {
		outcomes = append(outcomes, d.String())
	}
	for _, o := range gate.HookOutcomes() {
		hooks = append(hooks, o.String())
	}
	var reasons []string
	for _, r := range spool.DeadReasons() {
		reasons = append(reasons, string(r))
	}
	for _, r := range spool.DropReasons() {
		reasons = append(reasons, string(r))
	}
	return map[string][]string{
		"state": {"due", "dead"}, "kind": {"fresh", "replayed", "due", "dead"}, "hook": {"/hooks/ci"},
		"reason": append(reasons, spool.Reasons()...),
		"class":  classes, "route_class": classes, "outcome": slices.Concat(outcomes, hooks, spool.Outcomes()),
		"answer": {"unknown", "refused", "accepted", "genuine", "stranger", "no_place"},
	}
}

func gather(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := registerMetrics(r); err != nil {
		t.Fatal(err)
	}
	if err := registerMetrics(r); err != nil {
		t.Fatalf("a second handler of one configuration: %v", err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// TestMetrics: names and help are in order, every label value comes from a
// closed set although callers choose everything they can, and the number of
// series is bounded.
func TestMetrics(t *testing.T) {
	g := newGitServer()
	s := start(t, "admission metered {\n total 5\n wait off\n }\n test_upstream", g.serve)
	s.signIn("203.0.113.5")
	release := s.holdAnonymous(g, "198.51.100.1")
	chosen := "chosen-by-caller"
	for _, a := range []ask{
		{path: "/" + chosen + ".git/info/refs?service=" + chosen},
		{path: "/" + chosen + ".git/info/refs?service=git-upload-pack", user: chosen, pass: chosen},
		{method: http.MethodPost, path: "/" + chosen + ".git/git-upload-pack", body: "0000"},
		{path: "/" + chosen, header: http.Header{"User-Agent": {chosen}, "X-Request-Id": {chosen}, "Cookie": {chosen + "=1"}}},
		{method: strings.ToUpper(strings.ReplaceAll(chosen, "-", "")), path: "/pub.git/info/refs"},
		{path: "/pub.git//info/refs?service=git-upload-pack&" + chosen + "=1"},
	} {
		a.from = "198.51.100.2"
		s.do(a)
	}
	release()

	families := gather(t)
	allowed, names, series := labelValues(), []string{}, 0
	for _, f := range families {
		names = append(names, f.GetName())
		series += seriesOf(f)
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "pool" {
					if l.GetValue() != "metered" {
						t.Errorf("%s: pool %q", f.GetName(), l.GetValue())
					}
					continue
				}
				if !slices.Contains(allowed[l.GetName()], l.GetValue()) {
					t.Errorf("%s: label %s has the value %q", f.GetName(), l.GetName(), l.GetValue())
				}
			}
		}
	}
	if want := allNames(); !slices.Equal(names, want) {
		t.Errorf("metrics\n%v\nwant\n%v", names, want)
	}
	if series > 400 {
		t.Errorf("%d series of one pool, want at most 400", series)
	}
	if problems, err := testutil.CollectAndLint(collector{process, keepers}); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

func allNames() []string {
	var names []string
	for _, name := range []string{
		"abandoned", "abandoned_cut_total", "callers_overflow_total", "challenge_replayed_total", "decisions_total", "in_use", "limit", "permit_hold_seconds",
		"public_request_limited_total", "questions_total", "verify_total", "waiting", "webhook_admission_total",
	} {
		names = append(names, "caddy_admission_"+name)
	}
	return names
}

func seriesOf(f *dto.MetricFamily) int {
	n := 0
	for _, m := range f.GetMetric() {
		if h := m.GetHistogram(); h != nil {
			n += len(h.GetBucket()) + 3
			continue
		}
		n++
	}
	return n
}

// value finds one series by its labels.
func value(families []*dto.MetricFamily, name string, labels map[string]string) float64 {
	for _, f := range families {
		for _, m := range f.GetMetric() {
			match := f.GetName() == "caddy_admission_"+name
			for _, l := range m.GetLabel() {
				if want, ok := labels[l.GetName()]; ok && want != l.GetValue() {
					match = false
				}
			}
			if match {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return -1
}

// TestCountersOutliveReloads: counters belong to the process, so neither a
// reload nor a rejected configuration starts them again.
func TestCountersOutliveReloads(t *testing.T) {
	g := newGitServer()
	const site = "admission lasting {\n total 5\n wait off\n }\n test_upstream"
	s := start(t, site, g.serve)
	fetch := func() {
		t.Helper()
		if r, _ := s.do(ask{method: http.MethodPost, path: readRPC, body: "0000", from: "198.51.100.1"}); r.StatusCode != http.StatusOK {
			t.Fatalf("fetch: %d", r.StatusCode)
		}
	}
	admitted := map[string]string{"pool": "lasting", "class": "anonymous", "outcome": "admitted"}
	fetch()
	if err := s.load(strings.Replace(site, "total 5", "total 6", 1)); err != nil {
		t.Fatal(err)
	}
	fetch()
	if err := s.load("admission lasting {\n total 6\n }\n no_such_directive"); err == nil {
		t.Fatal("it loaded")
	}
	fetch()
	families := gather(t)
	if n := value(families, "decisions_total", admitted); n != 3 {
		t.Errorf("%v admitted after a reload, want 3", n)
	}
	if n := value(families, "permit_hold_seconds", map[string]string{"pool": "lasting", "class": "anonymous"}); n != 3 {
		t.Errorf("%v hold times, want 3", n)
	}
	if n := value(families, "limit", map[string]string{"pool": "lasting", "class": "push"}); n < 1 {
		t.Errorf("push limit %v", n)
	}
}
