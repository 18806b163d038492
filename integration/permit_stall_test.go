package integration

import (
	"net/http"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// TestStalledPostsNeverReachTheServer sends 200 fetches whose bodies stop after seven bytes through the gateway to an Apache
// with 150 workers: without the gateway they hold all of them, and every git process behind. The server sees none, and a push
// beside them passes.
func TestStalledPostsNeverReachTheServer(t *testing.T) {
	const stalled = 200
	s := newSiteBefore(t, harness.StartPrefork(t), "admission")
	repo := s.apache.Repository(t, "public-stalled.git")
	git := harness.NewGit(t)
	git.UseHelper(t, harness.Alice, harness.AliceSecret)
	work := s.workTree(t, git, repo, s.url(repo.Name))
	push := func() time.Duration {
		git.Commit(t, work, "beside stalled fetches")
		start := time.Now()
		git.Run(t, work, "push", "-q", "origin", "main")
		return time.Since(start)
	}
	push() // proves the credential, so that both measurements are of the same work
	quiet := push()

	var held []*harness.Holder
	start := time.Now()
	for i := range stalled {
		held = append(held, harness.Send(t, harness.Loopback(i), s.addr, harness.UnfinishedFetch(path(repo))))
	}
	beside := push()
	if n := s.apache.Working(t); n != 0 {
		t.Errorf("Apache is working on %d requests, want none: nobody else asks it for anything", n)
	}
	wantPushed(t, git, work, repo, "main")
	if spent := time.Since(start); spent > 10*time.Second {
		t.Logf("the machine is slow: %v from the first stalled fetch to the end of the push", spent)
	}
	for i, h := range held {
		resp, body, err := h.Answer(time.Minute)
		if err != nil {
			t.Fatalf("fetch %d: %v", i, err)
		}
		if resp.StatusCode != http.StatusRequestTimeout {
			t.Fatalf("fetch %d: %s %.100q, want 408", i, resp.Status, body)
		}
	}
	if n := s.apache.Finished(t, "POST "+path(repo)+"/git-upload-pack"); n != 0 {
		t.Errorf("%d of the stalled fetches reached Apache", n)
	}
	s.WaitIdle(t, time.Minute)
	t.Logf("a push took %v beside %d stalled fetches, %v without", beside.Round(time.Millisecond), stalled, quiet.Round(time.Millisecond))
}
