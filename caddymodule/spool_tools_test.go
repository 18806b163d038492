package caddymodule

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-admission/gateway/admission/gate"
	"github.com/caddy-admission/gateway/admission/spool"
	"github.com/caddy-admission/gateway/internal/adminapi"
)

// adminAsk asks the admin routes as the endpoint does.
func adminAsk(t *testing.T, method, target string, answer any) int {
	t.Helper()
	mux := http.NewServeMux()
	for _, route := range (Admin{}).Routes() {
		mux.HandleFunc(route.Pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := route.Handler.ServeHTTP(w, r); err != nil {
				w.WriteHeader(err.(caddy.APIError).HTTPStatus)
			}
		})
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	if answer != nil && w.Code == http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), answer); err != nil {
			t.Fatalf("%s %s: %v: %s", method, target, err, w.Body)
		}
	}
	return w.Code
}

// TestDeliveriesAPI lists, shows, drops, replays and exports through the admin
// endpoint, and counts what it does.
func TestDeliveriesAPI(t *testing.T) {
	ci := newReceiver(t)
	ci.behave(http.StatusNotFound, nil) // never
	s := start(t, hookSite(t, "tools", filepath.Join(t.TempDir(), "spool"), "always", ci.URL), nothing)
	for n := range 3 {
		if status, _ := s.deliver(n, "team/app"); status != http.StatusAccepted {
			t.Fatal(status)
		}
	}
	var list adminapi.Deliveries
	waitFor(t, "three dead", func() bool {
		adminAsk(t, "GET", adminapi.DeliveriesPath+"?state=dead", &list)
		return len(list.Deliveries) == 3
	})
	first, second, third := list.Deliveries[0], list.Deliveries[1], list.Deliveries[2]
	if first.Pool != "tools" || first.Repository != "team/app" || first.Delivery != deliveryID(0) || first.Dead != "refused" {
		t.Errorf("%+v", first)
	}
	var d adminapi.Delivery
	at := adminapi.DeliveriesPath + "/"
	if code := adminAsk(t, "GET", at+first.ID+"?body=1", &d); code != 200 || !bytes.Contains(d.Body, []byte(`"n":0`)) || !d.Sealed {
		t.Errorf("%d %+v", code, d)
	}
	if p := pool(t, "tools").Spool; p == nil || p.Depth != 0 || p.Dead != 3 || p.Hooks["/hooks/ci"].Dead != 3 {
		t.Errorf("%+v", p)
	}
	var text bytes.Buffer
	if err := printStatus(&text, currentState(process)); err != nil || !strings.Contains(text.String(), ": 0 due, oldest 0s, 3 dead, ") {
		t.Errorf("%v\n%s", err, text.String())
	}
	ci.behave(0, nil)
	if code := adminAsk(t, "POST", at+second.ID+"/replay", nil); code != http.StatusNoContent {
		t.Errorf("replay: %d", code)
	}
	if code := adminAsk(t, "DELETE", at+third.ID, nil); code != http.StatusNoContent {
		t.Errorf("drop: %d", code)
	}
	waitFor(t, "the replay", func() bool {
		adminAsk(t, "GET", adminapi.DeliveriesPath, &list)
		return len(list.Deliveries) == 1 && list.Deliveries[0].ID == first.ID
	})
	for target, want := range map[string]int{
		at + "999": 404, at + "x": 404, at + first.ID + "/x": 404, adminapi.DeliveriesPath + "?state=odd": 400,
		adminapi.DeliveriesPath + "?limit=0": 400, adminapi.ExportPath + "?pool=other": 404, adminapi.ExportPath: 200,
	} {
		if code := adminAsk(t, "GET", target, nil); code != want {
			t.Errorf("%s: %d, want %d", target, code, want)
		}
	}
	if code := adminAsk(t, "PUT", at+first.ID, nil); code != http.StatusMethodNotAllowed {
		t.Errorf("PUT: %d", code)
	}
	snap := pool(t, "tools").Spool
	if snap.Dropped["operator"] != 1 || snap.Died["refused"] != 3 || snap.Replayed["delivered"] != 1 {
		t.Errorf("%+v", snap.Snapshot)
	}
}

// TestSpoolMetrics: names, labels and values.
func TestSpoolMetrics(t *testing.T) {
	ci := newReceiver(t)
	s := start(t, hookSite(t, "metered", filepath.Join(t.TempDir(), "spool"), "always", ci.URL), nothing)
	s.deliver(1, "team/app")
	<-ci.arrived
	allowed, series := labelValues(), 0
	names := map[string]bool{}
	for _, f := range gather(t) {
		series += seriesOf(f)
		names[f.GetName()] = true
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() != "pool" && !slices.Contains(allowed[l.GetName()], l.GetValue()) {
					t.Errorf("%s: label %s has the value %q", f.GetName(), l.GetName(), l.GetValue())
				}
			}
		}
	}
	for _, d := range allDescs {
		name, _, _ := strings.Cut(strings.TrimPrefix(d.String(), `Desc{fqName: "`), `"`)
		if strings.Contains(name, "_spool_") && !names[name] {
			t.Errorf("%s is missing", name)
		}
	}
	if series > 400 {
		t.Errorf("%d series of one pool, want at most 400", series)
	}
	if problems, err := testutil.CollectAndLint(collector{process, keepers}); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

// TestRefusedDeliveries: who was refused is listed with who recovers it, and
// refusals in a row are counted until one is taken.
func TestRefusedDeliveries(t *testing.T) {
	ci := newReceiver(t)
	ci.behave(http.StatusInternalServerError, nil)
	site := strings.Replace(hookSite(t, "refusals", filepath.Join(t.TempDir(), "spool"), "off", ci.URL), "fresh_wait 7s", "status 500 never", 1)
	s := start(t, site, nothing)
	for n := range 2 {
		if status, _ := s.deliver(n, "team/app"); status != http.StatusInternalServerError {
			t.Fatal(status)
		}
	}
	var list adminapi.RefusedDeliveries
	waitFor(t, "two refusals", func() bool {
		adminAsk(t, "GET", adminapi.RefusedPath, &list)
		return len(list.Refused) == 2
	})
	r := list.Refused[0]
	if r.DeliveryID != deliveryID(1) || r.RepositoryHash != "1c3cc2b4be8da0c6" && len(r.RepositoryHash) != 16 ||
		r.Reason != "upstream_failed" || r.RecoveredBy != "script" || !r.Verified || r.Status != 500 || list.Counts["upstream_failed"] != 2 {
		t.Errorf("%+v", list)
	}
	streak := func() int64 { return pool(t, "refusals").Ingress.Hooks["/hooks/ci"].ConsecutiveRefusals }
	if n := streak(); n != 2 {
		t.Errorf("%d refusals in a row, want 2", n)
	}
	ci.behave(0, nil)
	s.deliver(3, "team/app")
	waitFor(t, "the end of the row", func() bool { return streak() == 0 })
}

// TestEveryRefusalHasAWay: no outcome that refuses falls out of the contract.
func TestEveryRefusalHasAWay(t *testing.T) {
	for _, o := range gate.HookOutcomes() {
		if _, ok := ways[o]; ok == (o == gate.HookDelivered || o == gate.HookKept) {
			t.Errorf("%s: way %v", o, ok)
		}
	}
	for _, reason := range spool.Reasons() {
		if _, ok := keepWays[reason]; !ok && !slices.Contains([]string{"disk", "closed", "other"}, reason) {
			t.Errorf("%s falls under a failed disk", reason)
		}
	}
}

// TestListingsAreTame: what a sender chose cannot steer an operator's
// terminal.
func TestListingsAreTame(t *testing.T) {
	const odd = "a\x1b[2Jb\u009bc\nd"
	var out bytes.Buffer
	kept := adminapi.Deliveries{Deliveries: []adminapi.Kept{{Item: spool.Item{Delivery: odd, Event: odd, Repository: odd}}}}
	refused := adminapi.RefusedDeliveries{Refused: []adminapi.RefusedDelivery{{DeliveryID: odd, Event: odd, Repository: odd}}}
	d := adminapi.Delivery{Detail: spool.Detail{Item: kept.Deliveries[0].Item, Header: http.Header{"User-Agent": {odd}}}}
	for _, err := range []error{printDeliveries(&out, kept), printRefused(&out, refused), printDelivery(&out, &d)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if text := out.String(); strings.ContainsAny(text, "\x1b\u009b") || strings.Contains(text, "c\nd") || !strings.Contains(text, "a?[2Jb?c?d") {
		t.Errorf("%q", text)
	}
}
