package gate

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-admission/gateway/admission"
)

const (
	pushRefs = "/pub.git/info/refs?service=git-receive-pack"
	readRefs = "/pub.git/info/refs?service=git-upload-pack"
	pushRPC  = "/pub.git/git-receive-pack"
	readRPC  = "/pub.git/git-upload-pack"
)

// signIn walks a pusher through discovery and candidate, as git does.
func signIn(t *testing.T, s *testServer, user, pass, addr string) {
	t.Helper()
	if r, _ := s.do(t, ask{path: pushRefs, addr: addr}); r.StatusCode != http.StatusUnauthorized {
		t.Fatalf("bare discovery: %d, want the upstream's 401", r.StatusCode)
	}
	if r, _ := s.do(t, ask{path: pushRefs, user: user, pass: pass, addr: addr}); r.StatusCode != http.StatusOK {
		t.Fatalf("discovery with the credential: %d", r.StatusCode)
	}
}

// holdAnonymous takes the anonymous place and returns when the upstream has it.
func holdAnonymous(t *testing.T, s *testServer, u *fakeUpstream) (release func()) {
	t.Helper()
	free, done := u.holdOn(readRPC), make(chan struct{})
	go func() {
		defer close(done)
		s.do(t, ask{method: http.MethodPost, path: readRPC, body: "0000", addr: "198.51.100.1"})
	}()
	for uri := range u.entered {
		if strings.HasSuffix(uri, readRPC) {
			break
		}
	}
	release = sync.OnceFunc(func() { close(free); <-done })
	t.Cleanup(release) // also when the test has failed
	return release
}

// TestA1 is the original reproduction: one anonymous fetch holds the one shared
// place; another anonymous one is refused, a proven push passes.
func TestA1(t *testing.T) {
	u := newFakeUpstream()
	s := serve(t, admission.Config{Total: 5, WaitOff: true}, Options{}, u.next)
	signIn(t, s, "dev", "pw", "203.0.113.5")
	release := holdAnonymous(t, s, u)

	r, body := s.do(t, ask{method: http.MethodPost, path: readRPC, body: "0000", addr: "198.51.100.2"})
	if r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("second anonymous fetch: %d, want 503", r.StatusCode)
	}
	if n, err := strconv.Atoi(r.Header.Get("Retry-After")); err != nil || n < 1 || n > 300 {
		t.Errorf("Retry-After is %q", r.Header.Get("Retry-After"))
	}
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain") || !strings.HasPrefix(body, "gateway: ") ||
		strings.Count(body, "\n") != 1 || r.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("refusal: %q %v", body, r.Header)
	}
	if r, _ := s.do(t, ask{method: http.MethodPost, path: pushRPC, body: "0000", user: "dev", pass: "pw", addr: "203.0.113.5"}); r.StatusCode != http.StatusOK {
		t.Errorf("proven push: %d, want 200", r.StatusCode)
	}
	signIn(t, s, "bob", "pw2", "203.0.113.99") // a pusher never seen before gets through too
	if r, _ := s.do(t, ask{method: http.MethodPost, path: pushRPC, body: "0000", user: "bob", pass: "pw2", addr: "203.0.113.99"}); r.StatusCode != http.StatusOK {
		t.Errorf("new pusher: %d, want 200", r.StatusCode)
	}
	release()
}

// TestA1Counterfactual switches the reservation off: the push is refused while
// the place is taken and passes once it is free.
func TestA1Counterfactual(t *testing.T) {
	u := newFakeUpstream()
	s := serve(t, admission.Config{
		Total: 4, WaitOff: true, AllowStarvation: true,
		Classes: map[string]*admission.ClassConfig{
			"push": {Reserve: ptr(0), Max: ptr(1)}, "read": {Reserve: ptr(1)}, "discovery": {Reserve: ptr(1)},
			"candidate": {Reserve: ptr(1)}, "anonymous": {Reserve: ptr(0), Max: ptr(1)},
		},
	}, Options{}, u.next)
	signIn(t, s, "dev", "pw", "203.0.113.5")
	push := ask{method: http.MethodPost, path: pushRPC, body: "0000", user: "dev", pass: "pw", addr: "203.0.113.5"}
	release := holdAnonymous(t, s, u)
	if r, _ := s.do(t, push); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("push without a reserve: %d, want 503", r.StatusCode)
	}
	release()
	if r, _ := s.do(t, push); r.StatusCode != http.StatusOK {
		t.Errorf("push with the place free: %d, want 200", r.StatusCode)
	}
}

// TestMadeUpCredentialBuysNothing: what a header claims takes nothing from a
// reserved pool, on a repository that answers 200 to any credential.
func TestMadeUpCredentialBuysNothing(t *testing.T) {
	u := newFakeUpstream()
	s := serve(t, admission.Config{Total: 5, WaitOff: true}, Options{}, u.next)
	if r, _ := s.do(t, ask{path: readRefs, user: "x", pass: "made-up"}); r.StatusCode != http.StatusOK {
		t.Fatalf("public discovery with any credential: %d", r.StatusCode)
	}
	release := holdAnonymous(t, s, u)
	for _, path := range []string{readRPC, pushRPC} {
		r, _ := s.do(t, ask{method: http.MethodPost, path: path, body: "0000", user: "x", pass: "made-up"})
		if r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(r.Header.Get(HeaderRefused), "class=anonymous") {
			t.Errorf("%s with a made-up credential: %d %q, want anonymous' 503", path, r.StatusCode, r.Header.Get(HeaderRefused))
		}
	}
	release()
}
