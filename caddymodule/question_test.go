package caddymodule

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestQuestionBehindRewrites: the question reaches the upstream as the first
// request did, through handlers that change path, query and headers in place.
// Otherwise a made-up credential on an open repository would be proven by the
// 404 that the twice stripped path gives.
func TestQuestionBehindRewrites(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	g := newGitServer()
	s := start(t, `admission rewritten {
		total 5
		wait off
	}
	vars color blue
	handle_path /git/* {
		request_header +X-Twice value
		request_header X-Color {vars.color}
		request_header X-Path {http.request.uri.path}
		test_upstream
	}
	respond "nothing here" 404`, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, strings.Join([]string{r.URL.RequestURI(), r.Header.Get("Authorization")[:min(5, len(r.Header.Get("Authorization")))],
			strings.Join(r.Header["X-Twice"], ","), r.Header.Get("X-Color"), r.Header.Get("X-Path")}, " "))
		mu.Unlock()
		g.serve(w, r)
	})
	r, _ := s.do(ask{path: "/git" + readRefs, from: "203.0.113.5", user: "x", pass: "made-up"})
	if r.StatusCode != http.StatusOK {
		t.Fatalf("open repository: %d", r.StatusCode)
	}
	want := []string{
		"/pub.git/info/refs?service=git-upload-pack Basic value blue /pub.git/info/refs",
		"/pub.git/info/refs?service=git-upload-pack  value blue /pub.git/info/refs",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("the upstream saw\n%s\nwant\n%s", strings.Join(seen, "\n"), strings.Join(want, "\n"))
	}
	if id := pool(t, "rewritten").Identity; id.Proofs.Held != 0 || id.Questions.Accepted != 1 {
		t.Errorf("proofs %d, questions %+v: a made-up credential proved something", id.Proofs.Held, id.Questions)
	}
}

// TestQuestionThroughBasicAuth: behind Caddy's own basic_auth a genuine
// credential is proven by the question, and the user of the first request does
// not leak into it.
func TestQuestionThroughBasicAuth(t *testing.T) {
	var mu sync.Mutex
	var users []string
	// The hash is bcrypt of "pw" with the lowest cost.
	s := start(t, `admission behind_auth {
		total 5
		wait off
	}
	basic_auth {
		dev $2a$04$rgZWY11nXGy.Tr7yYVMCIOUlD/JB24VTF.ssB5MoqDe9z06glmWLK
	}
	request_header X-User {http.auth.user.id}
	test_upstream`, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		users = append(users, r.Header.Get("X-User"))
		mu.Unlock()
		w.Header().Set("Content-Type", "application/x-git-receive-pack-advertisement")
		_, _ = io.WriteString(w, "001f# service=git-receive-pack\n00000000")
	})
	if r, _ := s.do(ask{path: pushRefs, from: "203.0.113.5", user: "dev", pass: "pw"}); r.StatusCode != http.StatusOK {
		t.Fatalf("genuine credential: %d", r.StatusCode)
	}
	if id := pool(t, "behind_auth").Identity; id.Proofs.Held != 1 || id.Questions.Refused != 1 {
		t.Errorf("proofs %d, questions %+v", id.Proofs.Held, id.Questions)
	}
	if want := []string{"dev"}; !slices.Equal(users, want) {
		t.Errorf("the upstream served %q, want %q: the question must stop at basic_auth", users, want)
	}
}
