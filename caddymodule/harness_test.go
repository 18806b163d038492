package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/integration/harness"
	"github.com/caddy-admission/gateway/internal/adminapi"
)

// upstream is a handler that stands for the server behind the gateway; tests
// put a git server or a probe into it.
type upstream struct{}

func (upstream) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.test_upstream", New: func() caddy.Module { return new(upstream) }}
}

var behind struct {
	sync.Mutex
	serve http.HandlerFunc
}

func (upstream) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	behind.Lock()
	serve := behind.serve
	behind.Unlock()
	serve(w, r)
	return nil
}

// failing is an app whose Start fails.
type failing struct{}

func (failing) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admission_test_failing", New: func() caddy.Module { return new(failing) }}
}
func (failing) Start() error { return fmt.Errorf("start refused by the test") }
func (failing) Stop() error  { return nil }

// probe is a handler whose Provision looks at what the handlers before it have
// done, and then fails.
type probe struct{}

var onProbe func()

func (probe) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.test_probe", New: func() caddy.Module { return new(probe) }}
}
func (probe) Provision(caddy.Context) error {
	onProbe()
	return errors.New("provision refused by the test")
}
func (probe) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return next.ServeHTTP(w, r)
}

func init() {
	caddy.RegisterModule(probe{})
	caddy.RegisterModule(upstream{})
	caddy.RegisterModule(failing{})
	httpcaddyfile.RegisterHandlerDirective("test_upstream", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		h.Next()
		return upstream{}, nil
	})
	httpcaddyfile.RegisterHandlerDirective("test_probe", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		h.Next()
		return probe{}, nil
	})
	httpcaddyfile.RegisterDirectiveOrder("test_probe", httpcaddyfile.Before, "respond")
	httpcaddyfile.RegisterDirectiveOrder("test_upstream", httpcaddyfile.Before, "respond")
}

// server is a Caddy in this process. Only one can run at a time.
type server struct {
	t    *testing.T
	addr string
}

// start loads a site block. The site trusts X-Forwarded-For from the test, so
// that requests can come from any address.
func start(t *testing.T, site string, serve http.HandlerFunc) *server {
	t.Helper()
	s := &server{t: t, addr: harness.Addr(t)}
	behind.Lock()
	behind.serve = serve
	behind.Unlock()
	if err := s.load(site); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// caddyfile puts a site's directives into a whole configuration.
func (s *server) caddyfile(site string) string {
	return `{
	admin off
	grace_period 1ns
	auto_https off
	persist_config off
	servers {
		trusted_proxies static 127.0.0.1/32
		trusted_proxies_strict
	}
	log {
		output discard
	}
}
http://` + s.addr + `, http://git.example.com:` + s.addr[strings.LastIndexByte(s.addr, ':')+1:] + " {\n" + site + "\n}\n"
}

// json adapts a site; change may edit it.
func (s *server) json(site string, change func(map[string]any)) []byte {
	s.t.Helper()
	raw, err := adapt(s.caddyfile(site))
	if err != nil {
		s.t.Fatal(err)
	}
	if change == nil {
		return raw
	}
	var all map[string]any
	if err := json.Unmarshal(raw, &all); err != nil {
		s.t.Fatal(err)
	}
	change(all)
	raw, err = json.Marshal(all)
	if err != nil {
		s.t.Fatal(err)
	}
	return raw
}

// load adapts and loads a site in place of the running one.
func (s *server) load(site string) error {
	raw, err := adapt(s.caddyfile(site))
	if err != nil {
		return err
	}
	return caddy.Load(raw, true)
}

// client opens a connection for each request: a reload closes idle ones.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// ask is one request of a client.
type ask struct {
	method, path, body, from, user, pass string
	header                               http.Header
}

// do is an ask that must be answered. In the moment of a reload the old server
// may still accept a connection and close it unread, so a client connects once
// more, as every client does.
func (s *server) do(a ask) (*http.Response, string) {
	s.t.Helper()
	resp, body, err := s.try(a)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		resp, body, err = s.try(a)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return resp, body
}

func (s *server) try(a ask) (*http.Response, string, error) {
	if a.method == "" {
		a.method = http.MethodGet
	}
	var body io.Reader
	if a.body != "" {
		body = strings.NewReader(a.body)
	}
	r, err := http.NewRequest(a.method, "http://"+s.addr+a.path, body)
	if err != nil {
		return nil, "", err
	}
	for k, v := range a.header {
		r.Header[k] = v
	}
	if a.method == http.MethodPost {
		service := a.path[strings.LastIndexByte(a.path, '/')+1:]
		r.Header.Set("Content-Type", "application/x-"+service+"-request")
	}
	if a.from != "" {
		r.Header.Set("X-Forwarded-For", a.from)
	}
	if a.user != "" {
		r.SetBasicAuth(a.user, a.pass)
	}
	resp, err := client.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return resp, string(b), err
}

// pool returns the state of one pool as the admin endpoint serves it.
func pool(t *testing.T, name string) adminapi.Pool {
	t.Helper()
	p, ok := currentState(process).Pools[name]
	if !ok {
		t.Fatalf("no pool %q", name)
	}
	return p
}

// gitServer answers like a git server: pub.git is open for reading, everything
// else wants dev:pw.
type gitServer struct {
	mu      sync.Mutex
	seen    []string
	hold    map[string]chan struct{} // path → closed when it may go on
	entered chan string
}

func newGitServer() *gitServer {
	return &gitServer{hold: map[string]chan struct{}{}, entered: make(chan string, 1000)}
}

// holdOn makes requests for a path wait and returns what lets them go.
func (g *gitServer) holdOn(path string) (release func()) {
	c := make(chan struct{})
	g.mu.Lock()
	g.hold[path] = c
	g.mu.Unlock()
	return sync.OnceFunc(func() {
		g.mu.Lock()
		delete(g.hold, path)
		g.mu.Unlock()
		close(c)
	})
}

func (g *gitServer) serve(w http.ResponseWriter, r *http.Request) {
	user, pass, given := r.BasicAuth()
	g.mu.Lock()
	g.seen = append(g.seen, fmt.Sprintf("%s %s %q", r.Method, r.URL.RequestURI(), user))
	hold := g.hold[r.URL.Path]
	g.mu.Unlock()
	_, _ = io.Copy(io.Discard, r.Body)
	g.entered <- r.URL.Path
	if hold != nil {
		<-hold
	}
	service := r.URL.Query().Get("service")
	if service == "" {
		service = r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	}
	open := strings.HasPrefix(r.URL.Path, "/pub.git/") && service == "git-upload-pack"
	if !open && !(given && user == "dev" && pass == "pw") {
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		http.Error(w, "sign in", http.StatusUnauthorized)
		return
	}
	if !strings.HasSuffix(r.URL.Path, "/info/refs") {
		w.Header().Set("Content-Type", "application/x-"+service+"-result")
		_, _ = io.WriteString(w, "0000")
		return
	}
	w.Header().Set("Content-Type", "application/x-"+service+"-advertisement")
	line := "# service=" + service + "\n"
	_, _ = fmt.Fprintf(w, "%04x%s0000%04x%s0000", len(line)+4, line, len("version 2\n")+4, "version 2\n")
}

func (g *gitServer) requests() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.seen...)
}

// waitFor returns when a request for path is inside the server.
func (g *gitServer) waitFor(path string) {
	for p := range g.entered {
		if p == path {
			return
		}
	}
}

// in is how many permits a class holds.
func in(t *testing.T, name string, class admission.Class) int {
	t.Helper()
	return pool(t, name).Classes[class.String()].InUse
}
