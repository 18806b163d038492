package caddymodule

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddy-admission/gateway/internal/adminapi"
)

const explained = `{
	admin off
	auto_https off
	persist_config off
	log {
		output discard
	}
}
http://git.example.com:8080 {
	@inner not path /internal/*
	admission @inner explained {
		total 64
		webhook /hooks/ci {
			profile bitbucket-cloud
			secret_file SECRET
		}
		logout /logout?kind=back
		login_start /user/oauth2/*
		login_callback /user/oauth2/*/callback
		class other {
			caller_bucket 10 5/s
		}
	}
	reverse_proxy 127.0.0.1:1
}
http://behind.example.com:8080 {
	route {
		reverse_proxy 127.0.0.1:1
		admission explained
	}
}
http://prefix.example.com:8080 {
	handle_path /git/* {
		admission explained
		reverse_proxy 127.0.0.1:1
	}
	handle {
		respond "hello"
	}
}
`

func explainedFile(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("a secret for this test, long enough"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(file, []byte(strings.Replace(explained, "SECRET", secret, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func explainCtx(t *testing.T) caddy.Context {
	t.Helper()
	raw, err := os.ReadFile(explainedFile(t))
	if err != nil {
		t.Fatal(err)
	}
	if raw, err = adapt(string(raw)); err != nil {
		t.Fatal(err)
	}
	var cfg caddy.Config
	if err := caddy.StrictUnmarshalJSON(raw, &cfg); err != nil {
		t.Fatal(err)
	}
	ctx, err := caddy.ProvisionContext(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

// TestExplain: class, reach and reason of requests of every kind.
func TestExplain(t *testing.T) {
	ctx := explainCtx(t)
	basic := http.Header{"Authorization": {"Basic ZGV2OnB3"}}
	const git, behind, prefix = "http://git.example.com:8080", "http://behind.example.com:8080", "http://prefix.example.com:8080"
	for name, c := range map[string]struct {
		q         adminapi.ExplainRequest
		class     string
		reachable bool
		refused   int
		why       string
	}{
		"bare discovery": {adminapi.ExplainRequest{Method: "GET", URL: git + readRefs}, "discovery", true, 0, "credential: none"},
		"unproven":       {adminapi.ExplainRequest{Method: "GET", URL: git + pushRefs, Header: basic}, "candidate", true, 0, "then the class is push"},
		"proven":         {adminapi.ExplainRequest{Method: "GET", URL: git + pushRefs, Header: basic, Proven: true}, "push", true, 0, "credential: proven"},
		"unusable":       {adminapi.ExplainRequest{Method: "GET", URL: git + pushRefs, Header: http.Header{"Authorization": {"Negotiate abc"}}}, "anonymous", true, 0, "can prove nothing"},
		"fetch": {adminapi.ExplainRequest{Method: "POST", URL: git + readRPC,
			Header: http.Header{"Content-Type": {"application/x-git-upload-pack-request"}}}, "anonymous", true, 0, "read_rpc"},
		"wrong type":     {adminapi.ExplainRequest{Method: "POST", URL: git + readRPC, Header: http.Header{"Content-Type": {"text/plain"}}}, "other", true, 415, "refused whatever the load"},
		"page":           {adminapi.ExplainRequest{Method: "GET", URL: git + "/explore"}, "other", true, 0, "no git request"},
		"kept out":       {adminapi.ExplainRequest{Method: "GET", URL: git + "/internal/x.git/info/refs?service=git-upload-pack"}, "none", false, 0, "does not match"},
		"hook":           {adminapi.ExplainRequest{Method: "POST", URL: git + "/hooks/ci"}, "webhook", true, 0, "configured as webhook"},
		"like a hook":    {adminapi.ExplainRequest{Method: "POST", URL: git + "/hooks//CI/"}, "other", true, 400, "looks like"},
		"logout":         {adminapi.ExplainRequest{Method: "POST", URL: git + "/logout?kind=back"}, "logout", true, 0, ""},
		"no logout":      {adminapi.ExplainRequest{Method: "POST", URL: git + "/logout"}, "other", true, 0, ""},
		"login start":    {adminapi.ExplainRequest{Method: "GET", URL: git + "/user/oauth2/idp"}, "login_start", true, 0, ""},
		"login callback": {adminapi.ExplainRequest{Method: "GET", URL: git + "/user/oauth2/idp/callback?code=1&state=2"}, "login_callback", true, 0, ""},
		"behind a proxy": {adminapi.ExplainRequest{Method: "GET", URL: behind + readRefs}, "none", false, 0, "cannot be reached"},
		"prefix":         {adminapi.ExplainRequest{Method: "GET", URL: prefix + "/git" + readRefs}, "discovery", true, 0, "rewrites the path to /pub.git/info/refs"},
		"past a prefix":  {adminapi.ExplainRequest{Method: "GET", URL: prefix + readRefs}, "none", false, 0, "nothing limits it"},
		"host header":    {adminapi.ExplainRequest{Method: "GET", URL: "http://127.0.0.1:8080" + readRefs, Header: http.Header{"host": {"git.example.com"}}}, "discovery", true, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			x, err := explain(ctx, c.q)
			if err != nil {
				t.Fatal(err)
			}
			why := strings.Join(x.Why, "\n")
			if x.Class != c.class || x.Reachable != c.reachable || x.Refused != c.refused || !strings.Contains(why, c.why) {
				t.Errorf("class %q reachable %v refused %d\n%s\nwant %q %v %d %q", x.Class, x.Reachable, x.Refused, why, c.class, c.reachable, c.refused, c.why)
			}
			if x.Reachable && x.Refused == 0 && x.Budget == nil {
				t.Error("no budget")
			}
		})
	}
	if n := len(process.list()); n != 0 {
		t.Errorf("explaining made %d pools", n)
	}
	x, err := explain(ctx, adminapi.ExplainRequest{Method: "GET", URL: git + "/explore", From: "2001:db8::5"})
	if err != nil || x.Caller.Prefix != "2001:db8::/64" || x.Budget.CallerBucket != "10, 5/s" || x.Site != "git.example.com" {
		t.Errorf("%v %+v", err, x)
	}
	for _, bad := range []adminapi.ExplainRequest{
		{Method: "GET", URL: "/path"}, {Method: "G T", URL: git + "/"}, {Method: "GET", URL: git + "/", From: "nowhere"},
	} {
		if _, err := explain(ctx, bad); err == nil {
			t.Errorf("%+v was explained", bad)
		}
	}
}

// command runs "caddy admission …" in this process.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root := &cobra.Command{Use: "admission", SilenceUsage: true, SilenceErrors: true}
	for _, c := range caddycmd.Commands() {
		if c.Name == "admission" {
			c.CobraFunc(root)
		}
	}
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs(args)
	err := root.Execute()
	return out.String(), err
}

// TestExplainCommand reads a configuration that does not run; a header's value
// is never printed.
func TestExplainCommand(t *testing.T) {
	file := explainedFile(t)
	out, err := command(t, "explain", "get", "http://git.example.com:8080"+pushRefs, "-H", "Authorization: Basic ZGV2OnB3", "--config", file, "--adapter", "caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"candidate", "explained", "git.example.com", "reachable", "per caller", "192.0.2.1/32"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "ZGV2OnB3") {
		t.Errorf("the credential is printed:\n%s", out)
	}
	out, err = command(t, "explain", "--json", "GET", "http://git.example.com:8080"+pushRefs, "--config", file, "--adapter", "caddyfile")
	var x map[string]any
	if err != nil || json.Unmarshal([]byte(out), &x) != nil {
		t.Fatalf("%v %s", err, out)
	}
	for _, field := range []string{"class", "pool", "budget", "site", "reachable", "caller", "why"} {
		if _, ok := x[field]; !ok {
			t.Errorf("no field %q in %s", field, out)
		}
	}
	if _, err := command(t, "explain", "GET", "http://x/", "-H", "secret-without-colon", "--config", file, "--adapter", "caddyfile"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a header without a value: %v", err)
	}
}

// TestLiveCommands ask a running gateway over its admin endpoint.
func TestLiveCommands(t *testing.T) {
	g := newGitServer()
	s := start(t, "admission live {\n total 5\n wait off\n }\n test_upstream", g.serve)
	release := s.holdAnonymous(g, "198.51.100.1")
	defer release()
	mux := http.NewServeMux()
	for _, route := range (Admin{}).Routes() {
		mux.HandleFunc(route.Pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := route.Handler.ServeHTTP(w, r); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
			}
		})
	}
	admin := httptest.NewServer(mux)
	t.Cleanup(admin.Close)
	address := strings.TrimPrefix(admin.URL, "http://")

	out, err := command(t, "status", "--address", address)
	if err != nil || !strings.Contains(out, "pool live: 1 of 5 git permits") || !strings.Contains(out, "anonymous") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = command(t, "status", "--json", "--address", address)
	var state adminapi.State
	if err != nil || json.Unmarshal([]byte(out), &state) != nil || state.Pools["live"].Classes["anonymous"].InUse != 1 {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = command(t, "explain", "--json", "POST", "http://"+s.addr+readRPC, "-H", "Content-Type: application/x-git-upload-pack-request", "--address", address)
	var x adminapi.Explanation
	if err != nil || json.Unmarshal([]byte(out), &x) != nil || x.Class != "anonymous" || x.Budget.InUse != 1 || x.Pool != "live" {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := command(t, "status", "--address", "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "is Caddy running") {
		t.Errorf("nobody there: %v", err)
	}
}
