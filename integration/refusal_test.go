package integration

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-admission/gateway/integration/harness"
)

// refusing is a site whose upstream keeps the requests the test wants kept, and where nothing waits: what has no place is
// refused at once.
type refusing struct {
	*site
	latch *harness.Latch
}

func newRefusing(t *testing.T, lines string) *refusing {
	t.Helper()
	s := &site{apache: harness.StartApache(t), lfs: harness.StartLFSStore(t), port: harness.Port(t)}
	s.addr = fmt.Sprintf("127.0.0.1:%d", s.port)
	latch := harness.StartLatch(t, s.apache.Addr)
	s.Gateway = harness.StartGateway(t, harness.Config{Sites: fmt.Sprintf(`http://:%d {
	admission {
		wait off
%s
	}
	@lfs path_regexp /info/lfs/
	%s
	%s
}`, s.port, lines, proxyTo(s.lfs.Addr, "@lfs"), proxyTo(latch.Addr, ""))})
	return &refusing{site: s, latch: latch}
}

// keep sends a request from the loopback address numbered source, and returns once the upstream keeps it.
func (s *refusing) keep(t *testing.T, source, already int, method, target string, header ...string) {
	t.Helper()
	header = append(header, harness.LatchHeader+": 1")
	harness.Send(t, harness.Loopback(source), s.addr, request(method, target, header...))
	s.latch.WaitKept(t, already+1)
}

func basicHeader(user, secret string) string {
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+secret))
}

const (
	uploadRefs  = "/info/refs?service=git-upload-pack"
	receiveRefs = "/info/refs?service=git-receive-pack"
)

// TestRefusedDiscoveryIsShown lets real git meet a refusal on its first request: git shows the text, with 503 for what is
// shared and 429 for the caller's own cap, and the credential helper is asked for nothing.
func TestRefusedDiscoveryIsShown(t *testing.T) {
	s := newRefusing(t, "class discovery {\n reserve 2\n max 2\n caller_max 1\n deadline 5m\n}")
	s.apache.Repository(t, "private.git")
	refused := func(t *testing.T, status string) {
		t.Helper()
		git := harness.NewGit(t)
		helper := git.UseHelper(t, harness.Alice, harness.AliceSecret)
		res := git.Try(git.Home, "ls-remote", s.url("private.git"))
		if res.Code != 128 || !strings.Contains(res.Stderr, "remote: ") || !strings.Contains(res.Stderr, "returned error: "+status) {
			t.Errorf("want exit 128, a line from the remote and error %s:\n%v", status, res)
		}
		if n := len(helper.Operations(t)); n != 0 {
			t.Errorf("helper was asked %v by a refused request", helper.Operations(t))
		}
	}
	get := "/git/unknown.git" + uploadRefs

	harness.Send(t, "127.0.0.1", s.addr, request("GET", get, harness.LatchHeader+": 1"))
	s.latch.WaitKept(t, 1)
	t.Run("own cap", func(t *testing.T) { refused(t, "429") })
	s.keep(t, 1, 1, "GET", get)
	resp, body := harness.Ask(t, harness.Loopback(2), s.addr, request("GET", "/git/private.git"+uploadRefs))
	wantRefusal(t, resp, body, http.StatusServiceUnavailable)
	if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/plain") {
		t.Errorf("Content-Type is %q, but git shows text/plain only", got)
	}
}

// TestRefusedPushKeepsTheCredential refuses the request of a real push that carries the password: git must not erase it.
func TestRefusedPushKeepsTheCredential(t *testing.T) {
	s := newRefusing(t, "class candidate {\n reserve 1\n max 1\n deadline 5m\n}")
	repo := s.apache.Repository(t, "public.git")
	s.keep(t, 1, 0, "GET", "/git/unknown.git"+receiveRefs, basicHeader("mallory", "guess"))

	git := harness.NewGit(t)
	helper := git.UseHelper(t, harness.Alice, harness.AliceSecret)
	work := s.workTree(t, git, repo, s.url(repo.Name))
	git.Commit(t, work, "refused")
	res := git.Try(work, "push", "origin", "main")
	if res.Code == 0 || !strings.Contains(res.Stderr, "remote: ") || !strings.Contains(res.Stderr, "503") {
		t.Errorf("want a refused push that shows the gateway's text and 503:\n%v", res)
	}
	wantNoErase(t, helper)

	s.latch.Release()
	s.WaitInUse(t, "candidate", 0)
	git.Run(t, work, "push", "origin", "main")
	wantPushed(t, git, work, repo, "main")
	wantNoErase(t, helper)
}

// TestRefusedLFS wants what git-lfs honours: 429 with Retry-After and a JSON message, whatever was full.
func TestRefusedLFS(t *testing.T) {
	s := newRefusing(t, "class candidate {\n reserve 1\n max 1\n deadline 5m\n}\nclass discovery {\n reserve 1\n max 1\n deadline 5m\n}")
	s.keep(t, 1, 0, "GET", "/git/unknown.git"+receiveRefs, basicHeader("mallory", "guess"))
	s.keep(t, 2, 1, "GET", "/git/unknown.git"+uploadRefs)
	for name, header := range map[string][]string{
		"credential not known": {basicHeader(harness.Alice, harness.AliceSecret)},
		"no credential":        nil,
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := harness.Ask(t, harness.Loopback(3), s.addr, harness.LFSRequest("/git/private.git", header...))
			wantRefusal(t, resp, body, http.StatusTooManyRequests)
			if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, "application/vnd.git-lfs+json") {
				t.Errorf("Content-Type is %q", got)
			}
			var message struct{ Message string }
			if err := json.Unmarshal([]byte(body), &message); err != nil || message.Message == "" {
				t.Errorf("body %q has no message: %v", body, err)
			}
		})
	}
}

// TestChallengeIsReplayed fills the discovery class: a repository that asked for a password in the last minute still does,
// from the gateway's memory; one that carries a password is not answered from it.
func TestChallengeIsReplayed(t *testing.T) {
	s := newRefusing(t, "class discovery {\n reserve 1\n max 1\n deadline 5m\n}")
	repo := s.apache.Repository(t, "private.git")
	want, _ := harness.Ask(t, harness.Loopback(1), s.addr, request("GET", path(repo)+receiveRefs))
	if want.StatusCode != http.StatusUnauthorized {
		t.Fatalf("first discovery: %s", want.Status)
	}
	s.keep(t, 2, 0, "GET", "/git/unknown.git"+receiveRefs)
	lines := len(s.apache.AccessLog(t))

	got, body := harness.Ask(t, harness.Loopback(3), s.addr, request("GET", path(repo)+receiveRefs))
	if got.StatusCode != http.StatusUnauthorized || got.Header.Get("WWW-Authenticate") != want.Header.Get("WWW-Authenticate") {
		t.Errorf("replayed challenge: %s, WWW-Authenticate %q, body %.100q", got.Status, got.Header.Get("WWW-Authenticate"), body)
	}
	if n := len(s.apache.AccessLog(t)); n != lines {
		t.Errorf("the upstream was asked %d times for a challenge that was known", n-lines)
	}
	git := harness.NewGit(t)
	helper := git.UseHelper(t, harness.Alice, harness.AliceSecret)
	work := s.workTree(t, git, repo, s.url(repo.Name))
	git.Commit(t, work, "with discovery full")
	git.Run(t, work, "push", "origin", "main")
	wantPushed(t, git, work, repo, "main")
	wantNoErase(t, helper)
}

// TestRefusalIsNever401 fills every git class and sends each kind of git request with credentials of many forms: what the
// gateway answers itself is never 401, which would make git erase the password.
func TestRefusalIsNever401(t *testing.T) {
	s := newRefusing(t, "total 5\nclass discovery {\n deadline 5m\n}\nclass candidate {\n deadline 5m\n}")
	slow := s.apache.Repository(t, "private-slow.git")
	other := "/git/unknown.git"
	s.keep(t, 1, 0, "GET", other+uploadRefs)
	s.keep(t, 2, 1, "GET", other+receiveRefs, basicHeader("mallory", "guess"))
	s.occupy(t, s.apache.Repository(t, "slow.git"), 3, 1)

	post := func(service string) string {
		return fmt.Sprintf("POST %s/%s HTTP/1.1\r\nHost: git.test\r\nConnection: close\r\nContent-Type: application/x-%s-request\r\nContent-Length: 4\r\n", path(slow), service, service)
	}
	get := func(target string) string {
		return "GET " + path(slow) + target + " HTTP/1.1\r\nHost: git.test\r\nConnection: close\r\n"
	}
	requests := map[string]func(credential string) string{
		"push discovery":  func(c string) string { return get(receiveRefs) + c + "\r\n\r\n" },
		"fetch discovery": func(c string) string { return get(uploadRefs) + c + "\r\n\r\n" },
		"push":            func(c string) string { return post("git-receive-pack") + c + "\r\n\r\n0000" },
		"fetch":           func(c string) string { return post("git-upload-pack") + c + "\r\n\r\n0000" },
		"archive":         func(c string) string { return post("git-upload-archive") + c + "\r\n\r\n0000" },
		"LFS batch":       func(c string) string { return harness.LFSRequest(path(slow), c) },
		"dumb":            func(c string) string { return get("/objects/info/packs") + c + "\r\n\r\n" },
	}
	credentials := map[string]string{
		"right password": basicHeader(harness.Alice, harness.AliceSecret),
		"wrong password": basicHeader(harness.Alice, "wrong"),
		"bearer":         "Authorization: Bearer x",
		"unknown scheme": "Authorization: Foo x",
		"two":            basicHeader("a", "b") + "\r\n" + basicHeader("c", "d"),
		"negotiate":      "Authorization: Negotiate YII=",
		"empty":          "Authorization: ",
	}
	refused := 0
	source := 10
	for what, build := range requests {
		for which, credential := range credentials {
			source++
			resp, _ := harness.Ask(t, harness.Loopback(source), s.addr, build(credential))
			if resp.Header.Get(refusalHeader) == "" {
				continue // the upstream's own answer
			}
			refused++
			if resp.StatusCode != http.StatusServiceUnavailable && resp.StatusCode != http.StatusTooManyRequests {
				t.Errorf("%s with %s: the gateway answered %s", what, which, resp.Status)
			}
		}
	}
	if want := 3 * len(credentials); refused < want {
		t.Errorf("only %d requests were refused, want at least %d: the classes were not full", refused, want)
	}
}
