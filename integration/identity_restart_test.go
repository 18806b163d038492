package integration

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caddy-admission/gateway/integration/harness"
)

// TestCredentialFirstRightAfterARestart: the proofs die with the process, so CI that sends its credential with every request,
// and never the bare one, is unknown to the next one. It reaches push and read at once, while anonymous fetches hold every place
// they can have; and the network it comes from is remembered, in a file without a credential that nobody else may read.
func TestCredentialFirstRightAfterARestart(t *testing.T) {
	s := newSite(t, "admission {\n total 16\n}")
	slow := s.apache.Repository(t, "slow.git")
	public, private := s.apache.Repository(t, "public.git"), s.apache.Repository(t, "private.git")
	git := harness.NewGit(t)
	git.Config(t, "http.extraHeader", basicHeader(harness.Alice, harness.AliceSecret))
	work := s.workTree(t, git, public, s.url(public.Name))
	git.Commit(t, work, "before")
	git.Run(t, work, "push", "-q", "origin", "main")

	s.Stop(t)
	groups, err := filepath.Glob(filepath.Join(s.Dir, "xdg", "caddy", "admission", "*.groups"))
	if err != nil || len(groups) != 1 {
		t.Fatalf("files of remembered networks: %v %v", groups, err)
	}
	if info, err := os.Stat(groups[0]); err != nil || info.Mode().Perm() != 0o600 || info.Size() == 0 {
		t.Errorf("%v %v, want mode 0600", info, err)
	}
	s.Start(t, s.config("admission {\n total 16\n}"))

	places := sharedPlaces(t, s)
	s.occupy(t, slow, 1, places)
	git.Commit(t, work, "after")
	git.Run(t, work, "push", "-q", "origin", "main")
	wantPushed(t, git, work, public, "main")
	git.Clone(t, s.url(private.Name))
	for _, class := range []string{"push", "read"} {
		if got := s.Class(t, class); got.Decisions["admitted"] == 0 {
			t.Errorf("nobody was proven for %s: %v", class, got.Decisions)
		}
	}
	if got := s.Class(t, "anonymous").InUse; got != places {
		t.Errorf("anonymous holds %d of %d: it was not full all the time", got, places)
	}
}
