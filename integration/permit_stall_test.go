package integration

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/flood"
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

// TestStalledReadersAreEnded has 60 clients that start a clone of 100 MB and stop reading, beside one that reads 64 KiB a
// second. After the stall limit the 60 are gone; the slow one, for whose place nobody waits, still gets its clone.
func TestStalledReadersAreEnded(t *testing.T) {
	const stalled, stall = 60, 5 * time.Second
	s := newCrowdSite(t, "admission {\n class anonymous {\n stall 5s\n }\n}", 100<<20, flood.BackendConfig{Workers: 128})
	slow := s.start(t, flood.Flood{Clients: 1, Rate: 64 << 10, Source: flood.Only(flood.Source(people)), Driver: flood.Fetch("/pub.git", s.tip)})
	s.WaitInUse(t, "anonymous", 1)
	start := time.Now()
	for i := range stalled {
		harness.Hold(t, harness.Loopback(i), s.addr, "/pub.git", s.tip)
	}
	s.WaitInUse(t, "anonymous", stalled+1)
	harness.Eventually(t, 2*time.Minute, "the stalled ones gone", func() error {
		if n := s.Class(t, "anonymous").Outcomes["stalled"]; n < stalled {
			return fmt.Errorf("%d of %d", n, stalled)
		}
		return nil
	})
	took := time.Since(start)
	if took < stall {
		t.Errorf("the stalled ones were gone after %v, want not before %v", took, stall)
	}
	for deadline := start.Add(4 * stall); time.Now().Before(deadline); {
		time.Sleep(time.Second) // until the slow one has outlived the limit four times
	}
	if n := slow.Answers(); n != 0 {
		t.Errorf("the slow reader's clone ended: %v", slow.Statuses)
	}
	harness.Eventually(t, time.Minute, "one request left at the server", func() error {
		if n := s.backend.Busy(); n != 1 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	c := s.Class(t, "anonymous")
	if c.InUse != 1 || c.Outcomes["stalled"] != stalled || c.Outcomes["displaced"] != 0 {
		t.Errorf("%d in use, outcomes %v; want the slow reader alone, and %d stalled", c.InUse, c.Outcomes, stalled)
	}
	t.Logf("60 stalled readers were gone after %v", took.Round(time.Second))
}
