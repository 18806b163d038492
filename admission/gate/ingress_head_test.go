package gate

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/webhook"
)

type hookVector struct {
	ID, Profile, Method, Target string
	Headers                     []struct {
		Name, Value string
		B64         string `json:"value_b64"`
	}
	Body          []byte          `json:"body_b64"`
	Secret        json.RawMessage `json:"secret"`
	Expect, Stage string
	Status        int
	Now           int64
}

func hookVectors(t *testing.T, file string) []hookVector {
	t.Helper()
	raw, err := os.ReadFile("../webhook/testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var f struct{ Vectors []hookVector }
	if err := json.Unmarshal(raw, &f); err != nil || len(f.Vectors) == 0 {
		t.Fatal(err, len(f.Vectors))
	}
	return f.Vectors
}

func (v hookVector) secrets(t *testing.T) webhook.Secrets {
	var list []string
	if err := json.Unmarshal(v.Secret, &list); err != nil {
		var one string
		if json.Unmarshal(v.Secret, &one) == nil && one != "" {
			list = []string{one}
		}
	}
	s, err := webhook.NewSecrets(list...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (v hookVector) request(t *testing.T) *http.Request {
	var raw bytes.Buffer
	fmt.Fprintf(&raw, "%s %s HTTP/1.1\r\n", v.Method, v.Target)
	for _, h := range v.Headers {
		value := h.Value
		if h.B64 != "" {
			b, err := base64.StdEncoding.DecodeString(h.B64)
			if err != nil {
				t.Fatal(err)
			}
			value = string(b)
		}
		fmt.Fprintf(&raw, "%s: %s\r\n", h.Name, value)
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw.String() + "\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(v.Body))
	return r
}

// Every vector through the gate: the status, not one byte of the body read and
// not one token spent for what its headers decide.
func TestHookVectorsThroughTheGate(t *testing.T) {
	for _, file := range []string{"webhook-kat.json", "webhook-malformed.json"} {
		for _, v := range hookVectors(t, file) {
			if v.Now != 0 {
				continue // signed times are checked in package webhook; the gate uses the real clock
			}
			t.Run(v.ID, func(t *testing.T) { v.throughGate(t) })
		}
	}
}

func (v hookVector) throughGate(t *testing.T) {
	profile, _ := webhook.Lookup(v.Profile)
	path, _, _ := strings.Cut(v.Target, "?")
	state, g := newIngressGate(t, admission.Config{}, IngressConfig{Hooks: []HookConfig{{Path: path, Profile: profile, Secrets: v.secrets(t)}}})
	u := &hookReceiver{}
	now := time.Now()
	before := levels(state, now)
	w, body := direct(g, v.request(t), u.next)
	byHeaders := v.Expect == "refuse" && (v.Stage == "headers" || v.Stage == "timestamp" || v.Stage == "token")
	switch {
	case byHeaders && body.read != 0:
		t.Errorf("the body was read %d times", body.read)
	case byHeaders && levels(state, now) != before:
		t.Errorf("buckets went from %v to %v", before, levels(state, now))
	case byHeaders && w.Code != v.Status, v.Expect == "refuse" && w.Code != v.Status:
		t.Errorf("status %d, want %d", w.Code, v.Status)
	case v.Expect == "refuse" && u.count() != 0:
		t.Error("a refused delivery reached the upstream")
	case v.Expect == "accept" && (w.Code != http.StatusOK || u.count() != 1 || u.bodies[0] != string(v.Body)):
		t.Errorf("status %d, upstream saw %d", w.Code, u.count())
	}
	total := int64(0)
	for _, n := range state.Ingress.Snapshot().Webhooks {
		total += n
	}
	if total != 1 {
		t.Errorf("%d outcomes counted, want 1", total)
	}
}

// A token taken proves that a request that passes its headers does spend: the
// counterpart without which the test above could not fail.
func TestHookSpendsAfterItsHeaders(t *testing.T) {
	slow := admission.Config{Classes: map[string]*admission.ClassConfig{"webhook": {
		Bucket: &admission.BucketConfig{Burst: 200, PerSecond: 0.001},
		Bytes:  &admission.BucketConfig{Burst: 32 << 20, PerSecond: 0.001},
	}}}
	state, g := newIngressGate(t, slow, IngressConfig{Hooks: []HookConfig{githubHook(t, "/hooks/ci")}})
	u := &hookReceiver{}
	now := time.Now()
	before := levels(state, now)
	d := delivery{body: `{"a":1}`, forged: true}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(d.bytes())))
	if err != nil {
		t.Fatal(err)
	}
	w, body := direct(g, r, u.next)
	if w.Code != http.StatusUnauthorized || u.count() != 0 || body.read == 0 {
		t.Fatalf("forged: %d, upstream %d, read %d", w.Code, u.count(), body.read)
	}
	after := levels(state, now)
	if before[0]-after[0] < 0.5 || before[1]-after[1] < 1 {
		t.Errorf("buckets from %v to %v: nothing was spent", before, after)
	}
}

func TestLookalikes(t *testing.T) {
	in := IngressConfig{
		Hooks:         []HookConfig{githubHook(t, "/hooks/ci"), githubHook(t, "/Git-Hub/")},
		Logouts:       []LogoutConfig{{Path: "/oidc/callback?logout=backchannel"}},
		LoginStart:    []string{"/user/oauth2/*", "/authorize"},
		LoginCallback: []string{"/user/oauth2/*/callback", "/authorize", "/oidc/callback"},
	}
	state, g := newIngressGate(t, admission.Config{}, in)
	for target, want := range map[string]string{
		"/hooks/ci":                             "webhook",
		"/hooks/ci?x=1":                         "webhook",
		"/Git-Hub/":                             "webhook",
		"/hooks/ci/":                            "lookalike",
		"/hooks//ci":                            "lookalike",
		"//hooks/ci":                            "lookalike",
		"/hooks/./ci":                           "lookalike",
		"/x/../hooks/ci":                        "lookalike",
		"/Hooks/ci":                             "lookalike",
		"/hooks/%63i":                           "lookalike",
		"/hooks%2fci":                           "lookalike",
		"/hooks/ci;a=b":                         "lookalike",
		"/hooks;a/ci":                           "lookalike",
		"/git-hub":                              "lookalike",
		"/Git-Hub":                              "lookalike",
		"/hooks/cix":                            "",
		"/hooks":                                "",
		"/":                                     "",
		"/user/oauth2/gh/callback":              "login_callback",
		"/user/oauth2/gh":                       "login_start",
		"/user/oauth2/gh/":                      "lookalike",
		"/user/OAuth2/gh":                       "lookalike",
		"/user/oauth2//callback":                "lookalike",
		"/user/oauth2/a/b/callback":             "",
		"/oidc/callback?logout=backchannel":     "logout",
		"/oidc/callback?code=1&state=2":         "login_callback",
		"/oidc/callback?logout=backchannel&x=1": "logout",
		"/oidc/callback?logout=b&logout=backchannel": "login_callback",
	} {
		ro, lookalike := g.ingress.match(httptest.NewRequest(http.MethodGet, target, nil))
		got := ""
		switch {
		case lookalike:
			got = "lookalike"
		case ro != nil:
			got = ro.class.String()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
	u := &hookReceiver{}
	w, body := direct(g, httptest.NewRequest(http.MethodPost, "/hooks/%63i", strings.NewReader("x")), u.next)
	if w.Code != http.StatusBadRequest || u.count() != 0 || body.read != 0 {
		t.Errorf("a look-alike: %d, upstream %d, read %d", w.Code, u.count(), body.read)
	}
	if n := outcome(state, HookLookalike); n != 13 {
		t.Errorf("%d look-alikes of hooks counted, want 13", n)
	}
}

func TestIngressConfigReportsAllMistakes(t *testing.T) {
	policy, _ := admission.Config{}.Compile()
	in := IngressConfig{
		Hooks: []HookConfig{githubHook(t, "/a"), githubHook(t, "/a"), githubHook(t, "b"), {Path: "/c"},
			{Path: "/d", Profile: githubHook(t, "/d").Profile}, githubHook(t, "/x//y"), githubHook(t, "/e*")},
		LoginStart: []string{"/u/a*"},
	}
	_, err := New(NewState(policy), Options{Ingress: &in})
	if err == nil {
		t.Fatal("accepted")
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 7 {
		t.Errorf("%d mistakes, want 7:\n%v", n, err)
	}
}

func FuzzMatch(f *testing.F) {
	in := IngressConfig{Hooks: []HookConfig{githubHook(f, "/hooks/ci")}, LoginStart: []string{"/user/oauth2/*"}}
	_, g := newIngressGate(f, admission.Config{}, in)
	for _, s := range []string{"/hooks/ci", "/hooks/%63i", "/hooks//ci/", "/a/../hooks/ci", "/user/oauth2/x", "/HOOKS/ci;x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		r := &http.Request{Method: http.MethodPost, Header: http.Header{}}
		u, err := new(url.URL).Parse(path)
		if err != nil {
			return
		}
		r.URL = u
		ro, lookalike := g.ingress.match(r)
		if ro != nil && lookalike {
			t.Fatal("both a route and a look-alike")
		}
		if ro != nil && ro.hook != nil && r.URL.EscapedPath() != "/hooks/ci" {
			t.Fatalf("%q is no configured path", path)
		}
	})
}
