package caddymodule

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-admission/gateway/integration/harness"
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// example reads caddyfile.example with its files below dir and its upstreams
// replaced.
func example(t *testing.T, dir, upstream string) string {
	t.Helper()
	raw, err := os.ReadFile("../caddyfile.example")
	if err != nil {
		t.Fatal(err)
	}
	if formatted := caddyfile.Format(raw); !bytes.Equal(formatted, raw) {
		t.Error("caddyfile.example is not formatted (caddy fmt)")
	}
	text := string(raw)
	for _, m := range regexp.MustCompile(`secret_file (\S+)`).FindAllStringSubmatch(text, -1) {
		secret := filepath.Join(dir, filepath.Base(m[1]))
		if err := os.WriteFile(secret, []byte("a secret for this test, long enough\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		text = strings.Replace(text, m[1], secret, 1)
	}
	text = strings.NewReplacer("/var/log/caddy", dir, "/var/lib/caddy", dir).Replace(text)
	return regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(text, upstream)
}

// TestExample adapts, validates and runs caddyfile.example; only ports,
// certificates and paths of the machine are replaced.
func TestExample(t *testing.T) {
	upstream, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.Host))
	})}
	go func() { _ = server.Serve(upstream) }()
	t.Cleanup(func() { _ = server.Close() })

	text := example(t, t.TempDir(), upstream.Addr().String())
	raw, err := adapt(text)
	if err != nil {
		t.Fatal(err)
	}
	var cfg caddy.Config
	if err := caddy.StrictUnmarshalJSON(raw, &cfg); err != nil {
		t.Fatal(err)
	}
	if err := caddy.Validate(&cfg); err != nil {
		t.Fatal(err)
	}

	s := &wholeServer{t: t}
	s.run(text)
	for _, site := range []string{"git.example.com", "ci.example.com"} {
		if status, body := s.get(site, "/"); status != http.StatusOK || body != site {
			t.Errorf("%s: %d %q", site, status, body)
		}
	}
	state := currentState(process)
	if state.Pools["default"].Total.Max != 128 || state.Pools["ci"].Classes["webhook"].Max != 4 {
		t.Errorf("pools %+v", state.Pools)
	}
}

// wholeServer runs a whole Caddyfile in clear text on a free port.
type wholeServer struct {
	t    *testing.T
	addr string
}

func (s *wholeServer) run(text string) {
	s.t.Helper()
	s.addr = harness.Addr(s.t)
	raw, err := adapt(text)
	if err != nil {
		s.t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(raw, &all); err != nil {
		s.t.Fatal(err)
	}
	all["admin"] = map[string]any{"disabled": true, "config": map[string]any{"persist": false}}
	apps := all["apps"].(map[string]any)
	web := apps["http"].(map[string]any)
	web["grace_period"] = 1
	srv := web["servers"].(map[string]any)["srv0"].(map[string]any)
	srv["listen"] = []string{s.addr}
	srv["automatic_https"] = map[string]any{"disable": true}
	raw, err = json.Marshal(all)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := caddy.Load(raw, true); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			s.t.Error(err)
		}
	})
}

func (s *wholeServer) get(host, path string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+s.addr+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Host = host
	resp, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, body.String()
}
