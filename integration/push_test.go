package integration

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/caddy-admission/gateway/integration/harness"
)

// anonymousPlaces is how many places the default total of 128 leaves to anonymous requests.
const anonymousPlaces = 64

// TestPushWithEveryAnonymousPlaceTaken runs each kind of push, and a clone of a private repository, while anonymous fetches
// hold every place that an anonymous request can have. The gateway's only configuration is its name.
func TestPushWithEveryAnonymousPlaceTaken(t *testing.T) {
	s := newSite(t, "admission")
	slow := s.apache.Repository(t, "slow.git")
	s.occupy(t, slow, 1, anonymousPlaces)

	pushes := []struct {
		name string
		push func(*testing.T, *site)
	}{
		{"small", pushSmall},
		{"large, chunked after its probe", pushLarge},
		{"http.extraHeader", pushExtraHeader},
		{"negotiated, public", func(t *testing.T, s *site) { pushNegotiated(t, s, "public-negotiate.git") }},
		{"negotiated, private", func(t *testing.T, s *site) { pushNegotiated(t, s, "private-negotiate.git") }},
		{"new branch and its deletion", pushBranch},
		{"git-lfs", pushLFS},
		{"clone with a credential in the URL", clonePrivate},
	}
	for _, p := range pushes {
		t.Run(p.name, func(t *testing.T) { p.push(t, s) })
	}

	if got := s.Class(t, "anonymous").InUse; got != anonymousPlaces {
		t.Errorf("%d anonymous permits in use at the end, want the %d held from the start", got, anonymousPlaces)
	}
}

func pushSmall(t *testing.T, s *site) {
	repo := s.apache.Repository(t, "public-small.git")
	git := harness.NewGit(t)
	helper := git.UseHelper(t, harness.Alice, harness.AliceSecret)
	work := s.workTree(t, git, repo, s.url(repo.Name))
	git.Commit(t, work, "small")
	git.Run(t, work, "push", "origin", "main")
	wantPushed(t, git, work, repo, "main")
	wantNoErase(t, helper)
}

func pushLarge(t *testing.T, s *site) {
	repo := s.apache.Repository(t, "public-large.git")
	tap := harness.StartTap(t, s.addr)
	git := harness.NewGit(t)
	helper := git.UseHelper(t, harness.Alice, harness.AliceSecret)
	work := s.workTree(t, git, repo, "http://"+tap.Addr+path(repo))
	harness.WriteRandom(t, filepath.Join(work, "big.bin"), 3<<20)
	git.Commit(t, work, "large")
	git.Run(t, work, "push", "origin", "main")
	wantPushed(t, git, work, repo, "main")
	wantProbe(t, tap)
	wantNoErase(t, helper)
}

// pushExtraHeader is what CI systems do: the credential is on every request, so the bare request is never sent and the
// gateway has to ask for itself.
func pushExtraHeader(t *testing.T, s *site) {
	repo := s.apache.Repository(t, "public-header.git")
	tap := harness.StartTap(t, s.addr)
	git := harness.NewGit(t)
	basic := base64.StdEncoding.EncodeToString([]byte(harness.Alice + ":" + harness.AliceSecret))
	git.Config(t, "http.extraHeader", "AUTHORIZATION: basic "+basic)
	work := s.workTree(t, git, repo, "http://"+tap.Addr+path(repo))
	git.Commit(t, work, "from a runner")
	git.Run(t, work, "push", "origin", "main")
	wantPushed(t, git, work, repo, "main")
	for _, r := range tap.Requests() {
		if r.Header.Get("Authorization") == "" {
			t.Errorf("git sent %s %s without its credential; the test is about never sending it so", r.Method, r.URL)
		}
	}
}

// pushNegotiated pushes commits on top of a history the client does not share exactly, so that git asks upload-pack first
// what both sides have.
func pushNegotiated(t *testing.T, s *site, name string) {
	repo := s.apache.Repository(t, name)
	tap := harness.StartTap(t, s.addr)
	git := harness.NewGit(t)
	helper := git.UseHelper(t, harness.Alice, harness.AliceSecret)
	git.Config(t, "push.negotiate", "true")
	work := s.workTree(t, git, repo, "http://"+tap.Addr+path(repo))
	for i := range 5 {
		git.Commit(t, work, fmt.Sprintf("step %d", i))
	}
	git.Run(t, work, "push", "origin", "main")
	wantPushed(t, git, work, repo, "main")
	wantNoErase(t, helper)
	if len(tap.Find("POST", "/git-upload-pack")) == 0 {
		t.Error("git negotiated nothing: no POST git-upload-pack was recorded")
	}
}

func pushBranch(t *testing.T, s *site) {
	repo := s.apache.Repository(t, "public-branch.git")
	git := harness.NewGit(t)
	helper := git.UseHelper(t, harness.Alice, harness.AliceSecret)
	work := s.workTree(t, git, repo, s.url(repo.Name))
	git.Run(t, work, "checkout", "-q", "-b", "topic")
	git.Commit(t, work, "on a branch")
	git.Run(t, work, "push", "-u", "origin", "topic")
	wantPushed(t, git, work, repo, "topic")
	git.Run(t, work, "push", "origin", "--delete", "topic")
	if got := repo.Ref(t, "topic"); got != "" {
		t.Errorf("topic is still at %s after its deletion", got)
	}
	wantNoErase(t, helper)
}

// pushLFS pushes to a private repository with git-lfs and clones it back: batch, locks, upload, download, push and fetch.
func pushLFS(t *testing.T, s *site) {
	repo := s.apache.Repository(t, "private-lfs.git")
	lfsRoundTrip(t, s.url(repo.Name))
	if got := s.Class(t, "lfs").Decisions["admitted"]; got == 0 {
		t.Error("no LFS object passed the gateway")
	}
}

func clonePrivate(t *testing.T, s *site) {
	repo := s.apache.Repository(t, "private-clone.git")
	git := harness.NewGit(t)
	work := git.Clone(t, "http://"+harness.Bob+":"+harness.BobSecret+"@"+s.addr+path(repo))
	if got := git.Head(t, work); got != repo.Head {
		t.Errorf("the clone is at %s, want %s", got, repo.Head)
	}
	resp, body := harness.Ask(t, "", s.addr, request("GET", path(repo)+"/info/refs?service=git-upload-pack"))
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the repository is not private: %s %.100q", resp.Status, body)
	}
}
