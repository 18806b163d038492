package gate

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// fakeUpstream answers like Apache with git-http-backend: /pub.git is open for
// reading, /priv.git is not, pushing needs dev:pw or bob:pw2. It counts what it
// was asked and can hold requests.
type fakeUpstream struct {
	mu      sync.Mutex
	seen    map[string]int // "METHOD path cred" → n
	inFl    atomic.Int64
	peak    atomic.Int64
	hold    map[string]chan struct{} // path suffix → released when closed
	entered chan string
	any     bool // open server: accepts everything and everybody
}

func newFakeUpstream() *fakeUpstream {
	return &fakeUpstream{seen: map[string]int{}, hold: map[string]chan struct{}{}, entered: make(chan string, 10_000)}
}

func (u *fakeUpstream) count(key string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen[key]
}

func (u *fakeUpstream) holdOn(suffix string) chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	c := make(chan struct{})
	u.hold[suffix] = c
	return c
}

func (u *fakeUpstream) next(w http.ResponseWriter, r *http.Request) error {
	n := u.inFl.Add(1)
	defer u.inFl.Add(-1)
	for p := u.peak.Load(); n > p && !u.peak.CompareAndSwap(p, n); p = u.peak.Load() {
	}
	user, pass, _ := r.BasicAuth()
	u.mu.Lock()
	u.seen[r.Method+" "+r.URL.RequestURI()+" "+user]++
	var wait chan struct{}
	for s, c := range u.hold {
		if strings.HasSuffix(r.URL.RequestURI(), s) {
			wait = c
		}
	}
	u.mu.Unlock()
	_, _ = io.Copy(io.Discard, r.Body)
	u.entered <- r.URL.RequestURI()
	if wait != nil {
		select {
		case <-wait:
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
	u.answer(w, r, (user == "dev" && pass == "pw") || (user == "bob" && pass == "pw2"))
	return nil
}

func (u *fakeUpstream) answer(w http.ResponseWriter, r *http.Request, genuine bool) {
	push := strings.Contains(r.URL.RequestURI(), "git-receive-pack") || strings.Contains(r.URL.Path, "/info/lfs/")
	if (push || strings.HasPrefix(r.URL.Path, "/priv")) && !genuine && !u.any {
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		w.Header().Set("Set-Cookie", "session=of-one-visitor")
		http.Error(w, "sign in", http.StatusUnauthorized)
		return
	}
	service := "git-upload-pack"
	if push {
		service = "git-receive-pack"
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/info/refs"):
		w.Header().Set("Content-Type", "application/x-"+service+"-advertisement")
		_, _ = io.WriteString(w, pkt("# service="+service+"\n")+"0000"+pkt("version 2\n")+"0000")
	case strings.HasSuffix(r.URL.Path, "/objects/batch"):
		w.Header().Set("Content-Type", lfsMediaType)
		_, _ = io.WriteString(w, `{"objects":[]}`)
	default:
		w.Header().Set("Content-Type", "application/x-"+service+"-result")
		_, _ = io.WriteString(w, "0000")
	}
}

// testServer runs a Gate in front of next. The client names its address in
// X-Test-Addr; without it it is 192.0.2.1.
type testServer struct {
	*httptest.Server
	gate  *Gate
	state *State
}

func serve(t *testing.T, cfg admission.Config, opts Options, next Next) *testServer {
	t.Helper()
	policy, problems := cfg.Compile()
	if policy == nil {
		t.Fatalf("config: %v", problems)
	}
	state := NewState(policy)
	opts.ClientIP = func(r *http.Request) (netip.Addr, bool) {
		if a := r.Header.Get("X-Test-Addr"); a != "" {
			return netip.MustParseAddr(a), true
		}
		return netip.MustParseAddr("192.0.2.1"), true
	}
	g, err := New(state, opts)
	if err != nil {
		t.Fatal(err)
	}
	s := &testServer{gate: g, state: state}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.Serve(w, r, next); err != nil {
			http.Error(w, "upstream", http.StatusBadGateway)
		}
	}))
	t.Cleanup(func() {
		s.Close()
		for _, c := range state.Controller.Snapshot().Classes {
			if c.InUse != 0 || c.Waiting != 0 || c.Abandoned != 0 {
				t.Errorf("class %s ends with %d in use, %d waiting, %d abandoned", c.Class, c.InUse, c.Waiting, c.Abandoned)
			}
		}
	})
	return s
}

type ask struct {
	method, path, addr, user, pass, body string
	header                               map[string]string
}

// patient gives up on an answer that should have been a refusal.
var patient = &http.Client{Timeout: 10 * time.Second}

// do sends one request and returns the response with its body read.
func (s *testServer) do(t *testing.T, a ask) (*http.Response, string) {
	t.Helper()
	if a.method == "" {
		a.method = http.MethodGet
	}
	var body io.Reader
	if a.body != "" {
		body = strings.NewReader(a.body)
	}
	r, err := http.NewRequest(a.method, s.URL+a.path, body)
	if err != nil {
		t.Fatal(err)
	}
	if a.method == http.MethodPost {
		_, last, _ := strings.Cut(a.path, ".git/")
		r.Header.Set("Content-Type", "application/x-"+last+"-request")
	}
	if a.user != "" {
		r.SetBasicAuth(a.user, a.pass)
	}
	if a.addr != "" {
		r.Header.Set("X-Test-Addr", a.addr)
	}
	for k, v := range a.header {
		r.Header.Set(k, v)
	}
	resp, err := patient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func ptr[T any](v T) *T { return &v }
