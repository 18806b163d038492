package caddymodule

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
	pushRPC  = "/pub.git/git-receive-pack"
	readRefs = "/pub.git/info/refs?service=git-upload-pack"
	readRPC  = "/pub.git/git-upload-pack"
)

// signIn goes through discovery and candidate as git does.
func (s *server) signIn(from string) {
	s.t.Helper()
	if r, _ := s.do(ask{path: pushRefs, from: from}); r.StatusCode != http.StatusUnauthorized {
		s.t.Fatalf("bare discovery: %d, want the upstream's 401", r.StatusCode)
	}
	if r, _ := s.do(ask{path: pushRefs, from: from, user: "dev", pass: "pw"}); r.StatusCode != http.StatusOK {
		s.t.Fatalf("discovery with the credential: %d", r.StatusCode)
	}
}

// holdAnonymous takes an anonymous place; release frees it and waits.
func (s *server) holdAnonymous(g *gitServer, from string) (release func()) {
	free, done := g.holdOn(readRPC), make(chan struct{})
	go func() {
		defer close(done)
		_, _, _ = s.try(ask{method: http.MethodPost, path: readRPC, body: "0000", from: from})
	}()
	g.waitFor(readRPC)
	release = sync.OnceFunc(func() { free(); <-done })
	s.t.Cleanup(release) // a test that fails must not leave Caddy waiting for it
	return release
}

// TestA1Handler is the original reproduction through the handler: one anonymous
// fetch holds the one shared place, another is refused, a proven push passes.
func TestA1Handler(t *testing.T) {
	g := newGitServer()
	s := start(t, "admission a1 {\n total 5\n wait off\n }\n test_upstream", g.serve)
	s.signIn("203.0.113.5")
	release := s.holdAnonymous(g, "198.51.100.1")
	defer release()

	r, body := s.do(ask{method: http.MethodPost, path: readRPC, body: "0000", from: "198.51.100.2"})
	if r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("second anonymous fetch: %d, want 503", r.StatusCode)
	}
	if n, err := strconv.Atoi(r.Header.Get("Retry-After")); err != nil || n < 1 || n > 300 {
		t.Errorf("Retry-After is %q", r.Header.Get("Retry-After"))
	}
	if !strings.HasPrefix(body, "gateway: ") || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("refusal %q as %q", body, r.Header.Get("Content-Type"))
	}
	if r, _ := s.do(ask{method: http.MethodPost, path: pushRPC, body: "0000", from: "203.0.113.5", user: "dev", pass: "pw"}); r.StatusCode != http.StatusOK {
		t.Errorf("proven push: %d, want 200", r.StatusCode)
	}
	if n := in(t, "a1", admission.Anonymous); n != 1 {
		t.Errorf("anonymous holds %d permits, want 1", n)
	}
}

// TestA1HandlerCounterfactual switches the reservation off: the push is refused
// while the place is taken and passes once it is free.
func TestA1HandlerCounterfactual(t *testing.T) {
	g := newGitServer()
	s := start(t, `admission a1_off {
		total 4
		wait off
		allow_starvation
		class push {
			reserve 0
			max 1
		}
		class read {
			reserve 1
		}
		class discovery {
			reserve 1
		}
		class candidate {
			reserve 1
		}
		class anonymous {
			max 1
		}
	}
	test_upstream`, g.serve)
	s.signIn("203.0.113.5")
	push := ask{method: http.MethodPost, path: pushRPC, body: "0000", from: "203.0.113.5", user: "dev", pass: "pw"}
	release := s.holdAnonymous(g, "198.51.100.1")
	if r, _ := s.do(push); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("push without a reserve: %d, want 503", r.StatusCode)
	}
	release()
	if r, _ := s.do(push); r.StatusCode != http.StatusOK {
		t.Errorf("push with the place free: %d, want 200", r.StatusCode)
	}
}
