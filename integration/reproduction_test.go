package integration

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-admission/gateway/integration/harness"
)

// TestAnonymousLoadDoesNotShedPush is the reproduction of A1 with a real push to a real server: of a total of 5, one place is
// shared, and one anonymous fetch holds it. Another anonymous fetch is refused; the push passes on its reserve.
func TestAnonymousLoadDoesNotShedPush(t *testing.T) {
	s := newSite(t, "admission {\n total 5\n wait off\n}")
	slow, public := s.apache.Repository(t, "slow.git"), s.apache.Repository(t, "public.git")
	s.occupy(t, slow, 1, 1)

	resp, body := harness.Ask(t, harness.Loopback(2), s.addr, harness.FetchRequest(path(slow), slow.Head, "Connection: close"))
	wantRefusal(t, resp, body, http.StatusServiceUnavailable)

	git := harness.NewGit(t)
	helper := git.UseHelper(t, harness.Alice, harness.AliceSecret)
	work := s.workTree(t, git, public, s.url("public.git"))
	git.Commit(t, work, "while the shared place is held")
	git.Run(t, work, "push", "origin", "main")
	wantPushed(t, git, work, public, "main")
	wantNoErase(t, helper)
	if got := s.Class(t, "anonymous").InUse; got != 1 {
		t.Errorf("%d anonymous permits in use after the push, want the 1 still held", got)
	}
}

// TestWithoutReservationPushIsShed is the counterfactual: without a reserve for push the same load sheds it, and once the
// place is free it passes.
func TestWithoutReservationPushIsShed(t *testing.T) {
	s := newSite(t, `admission {
	total 4
	wait off
	allow_starvation
	class push {
		reserve 0
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
}`)
	slow, public := s.apache.Repository(t, "slow.git"), s.apache.Repository(t, "public.git")
	release := s.occupy(t, slow, 1, 1)

	git := harness.NewGit(t)
	helper := git.UseHelper(t, harness.Alice, harness.AliceSecret)
	work := s.workTree(t, git, public, s.url("public.git"))
	git.Commit(t, work, "refused at first")
	res := git.Try(work, "push", "origin", "main")
	if res.Code == 0 || !strings.Contains(res.Stderr, "503") {
		t.Errorf("the push without a reserve was not refused with 503:\n%v", res)
	}
	if got := public.Ref(t, "main"); got != public.Head {
		t.Errorf("main moved to %s by a refused push", got)
	}

	release()
	s.WaitInUse(t, "anonymous", 0)
	git.Run(t, work, "push", "origin", "main")
	wantPushed(t, git, work, public, "main")
	wantNoErase(t, helper)
}

// wantPushed fails the test unless the server's branch is at the work tree's HEAD.
func wantPushed(t *testing.T, git *harness.Git, work string, r *harness.Repository, branch string) {
	t.Helper()
	if got, want := r.Ref(t, branch), git.Head(t, work); got != want {
		t.Errorf("%s of %s is at %q, want %q", branch, r.Name, got, want)
	}
}

// wantNoErase fails the test when git was made to forget a credential, or never used the helper.
func wantNoErase(t *testing.T, helper *harness.CredentialHelper) {
	t.Helper()
	if helper.Count(t, "get") == 0 || helper.Count(t, "erase") != 0 {
		t.Errorf("helper was asked %v, want a get and no erase", helper.Operations(t))
	}
}
