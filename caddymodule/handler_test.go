package caddymodule

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-admission/gateway/internal/adminapi"
)

// lastApp is the app of the configuration that is running.
func lastApp(t *testing.T) *App {
	t.Helper()
	ctx := caddy.ActiveContext()
	app, err := ctx.App("admission")
	if err != nil {
		t.Fatal(err)
	}
	return app.(*App)
}

// TestPlaceholders: class and repository are known to the handlers behind.
func TestPlaceholders(t *testing.T) {
	s := start(t, `admission named
	respond "{http.admission.class}|{http.admission.repository}|{http.admission.reason}|{http.admission.unknown}"`, nil)
	for path, want := range map[string]string{
		"/team/app.git/info/refs?service=git-upload-pack": "discovery|team/app||{http.admission.unknown}",
		"/index.html": "other|||{http.admission.unknown}",
	} {
		if _, body := s.do(ask{path: path}); body != want {
			t.Errorf("%s: %q, want %q", path, body, want)
		}
	}
}

// TestQuietSite: with nothing but the directive, what is no git request is
// answered as without it.
func TestQuietSite(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Saw", r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte("answer"))
	}
	requests := []ask{
		{path: "/"}, {path: "/api/v1/user", user: "dev", pass: "pw"}, {path: "/v2/"}, {path: "/v2/team/app/manifests/latest"},
		{method: http.MethodPut, path: "/v2/team/app/blobs/uploads/1", body: "blob"}, {path: "/api/healthz"},
		{path: "/team/app/raw/branch/main/HEAD"}, {method: http.MethodDelete, path: "/api/packages/team/generic/x/1"},
		{method: http.MethodPost, path: "/api/actions/runner.v1.RunnerService/FetchTask", body: "{}"},
		{path: "/user/events", header: http.Header{"Accept": {"text/event-stream"}}},
		{method: http.MethodOptions, path: "/a%2Fb?x=%00"},
	}
	answers := func(site string) (out []string) {
		s := start(t, site, echo)
		for _, a := range requests {
			r, body := s.do(a)
			r.Header.Del("Date")
			raw, err := json.Marshal(r.Header)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, r.Status+" "+string(raw)+" "+body)
		}
		return out
	}
	without, with := answers("test_upstream"), answers("admission quiet\n test_upstream")
	for i := range requests {
		if with[i] != without[i] {
			t.Errorf("%s %s:\nwith    %s\nwithout %s", requests[i].method, requests[i].path, with[i], without[i])
		}
	}
}

// TestAdminState: the endpoint serves the pools of this process, GET only.
func TestAdminState(t *testing.T) {
	g := newGitServer()
	s := start(t, "admission shown {\n total 5\n wait off\n }\n test_upstream", g.serve)
	release := s.holdAnonymous(g, "198.51.100.1")
	defer release()

	handler := Admin{}.Routes()[0].Handler
	w := httptest.NewRecorder()
	if err := handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, adminapi.StatePath, nil)); err != nil {
		t.Fatal(err)
	}
	var state adminapi.State
	if err := json.Unmarshal(w.Body.Bytes(), &state); err != nil {
		t.Fatal(err)
	}
	p := state.Pools["shown"]
	if !p.Active || p.Total.Max != 5 || p.Classes["anonymous"].InUse != 1 || p.Classes["push"].Reserve != 1 {
		t.Errorf("state %+v", p)
	}
	if w := p.Classes["webhook"]; w.Bucket == nil || w.Bucket.Tokens != 200 || w.Bytes == nil || w.Bytes.Tokens != 32<<20 || p.Classes["push"].Bucket != nil {
		t.Errorf("budgets of webhook %+v, of push %+v", w, p.Classes["push"])
	}
	if l := p.Classes["login_start"].Bucket; l == nil || l.Burst != 16 || l.Tokens != 16 {
		t.Errorf("budget of login_start %+v", l)
	}
	if len(p.Shares) == 0 || !strings.Contains(strings.Join(p.Shares, "\n"), "git total 5") {
		t.Errorf("shares %q", p.Shares)
	}
	err := handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, adminapi.StatePath, nil))
	var api caddy.APIError
	if !errors.As(err, &api) || api.HTTPStatus != http.StatusMethodNotAllowed {
		t.Errorf("POST: %v", err)
	}
}

// TestJSON: users of JSON get the same checks, and pools may stand in the app.
func TestJSON(t *testing.T) {
	config := func(app, handlers string) string {
		return `{"admin":{"disabled":true},"logging":{"logs":{"default":{"writer":{"output":"discard"}}}},"apps":{"admission":` + app +
			`,"http":{"servers":{"s":{"listen":["127.0.0.1:0"],"routes":[{"handle":[` + handlers + `]}]}}}}}`
	}
	for name, c := range map[string]struct{ app, handlers, want string }{
		"pools in the app":       {`{"pools":{"json_app":{"total":50}}}`, `{"handler":"admission","name":"json_app"}`, ""},
		"all mistakes":           {`{"pools":{"p":{"total":-1,"forge":"github","caller":{"ipv4_bits":99}}}}`, `{"handler":"admission"}`, "total: found -1|forge: found \"github\"|caller: found 99"},
		"in the handler":         {`{}`, `{"handler":"admission","pool":{"classes":{"pusher":{}}}}`, `class "pusher"`},
		"two configurations":     {`{"pools":{"p":{"total":50}}}`, `{"handler":"admission","name":"p","pool":{"total":60}}`, "two different configurations"},
		"the same configuration": {`{"pools":{"p":{"total":50}}}`, `{"handler":"admission","name":"p","pool":{"total":50}}`, ""},
		"name":                   {`{}`, `{"handler":"admission","name":"a b"}`, "allowed: 1 to 64 letters"},
		"unknown field":          {`{}`, `{"handler":"admission","pool":{"totl":5}}`, "unknown field"},
		"missing secret":         {`{}`, `{"handler":"admission","pool":{"hooks":[{"path":"/h","profile":"github","secret_files":["/nonexistent/secret"]}]}}`, "/nonexistent/secret"},
		"clones of a page":       {`{}`, `{"handler":"admission","pool":{"classes":{"web":{"clones":3}}}}`, "only the git classes run clones"},
	} {
		t.Run(name, func(t *testing.T) {
			var cfg caddy.Config
			if err := caddy.StrictUnmarshalJSON([]byte(config(c.app, c.handlers)), &cfg); err != nil {
				t.Fatal(err)
			}
			err := caddy.Validate(&cfg)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			for _, want := range strings.Split(c.want, "|") {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %q in it", err, want)
				}
			}
		})
	}
}
