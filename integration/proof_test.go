package integration

import (
	"testing"

	"github.com/caddy-admission/gateway/integration/harness"
)

// TestMadeUpCredentialTakesNoReservedPlace is A7 on a server that answers 200 to any credential where a repository is public:
// clones with a made-up password, accepted by the server at every step, stay among the anonymous ones, and a clone and a
// push with genuine passwords pass beside them.
func TestMadeUpCredentialTakesNoReservedPlace(t *testing.T) {
	s := newSite(t, "admission {\n total 12\n}")
	slow := s.apache.Repository(t, "slow.git")
	private := s.apache.Repository(t, "private.git")
	release := slow.Hold(t)
	defer release()

	// Twice as many as there are places, each with a password of its own; the server accepts the discovery of every one.
	places := sharedPlaces(t, s)
	for i := range 2 * places {
		credential := basicHeader("nobody", harness.Loopback(i))
		resp, body := harness.Ask(t, harness.Loopback(i), s.addr, request("GET", path(slow)+uploadRefs, credential, "Git-Protocol: version=2"))
		if resp.StatusCode != 200 {
			t.Fatalf("the server does not accept made-up passwords, so the test says nothing: %s %.100q", resp.Status, body)
		}
		harness.Send(t, harness.Loopback(i), s.addr, harness.FetchRequest(path(slow), slow.Head, credential))
	}
	s.WaitInUse(t, "anonymous", places)
	for _, class := range []string{"push", "read"} {
		if got := s.Class(t, class); got.InUse != 0 || got.Decisions["admitted"] != 0 {
			t.Errorf("made-up passwords took %d places of class %s (%v)", got.InUse, class, got.Decisions)
		}
	}

	git := harness.NewGit(t)
	helper := git.UseHelper(t, harness.Alice, harness.AliceSecret)
	work := git.Clone(t, s.url(private.Name))
	git.Commit(t, work, "beside made-up passwords")
	git.Run(t, work, "push", "origin", "main")
	wantPushed(t, git, work, private, "main")
	wantNoErase(t, helper)
}

// sharedPlaces is how many places an anonymous request can have: the class's max or what no class reserves.
func sharedPlaces(t *testing.T, s *site) int {
	t.Helper()
	p := s.Pool(t)
	return min(p.Classes["anonymous"].Max, p.Total.Shared)
}
