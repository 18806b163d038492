package integration

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// TestHarness proves the tools the other tests rely on, without any product in the path: a push is recorded with its probe,
// a held clone is held until it is released, git-lfs stores an object and fetches it back.
func TestHarness(t *testing.T) {
	apache := harness.StartApache(t)
	lfs := harness.StartLFSStore(t)
	port := harness.Port(t)
	front := fmt.Sprintf("127.0.0.1:%d", port)
	harness.StartGateway(t, harness.Config{Sites: fmt.Sprintf(`http://:%d {
	@lfs path_regexp /info/lfs/
	reverse_proxy @lfs %s
	reverse_proxy %s
}`, port, lfs.Addr, apache.Addr)})
	tap := harness.StartTap(t, front)

	t.Run("a large push is chunked and probed", func(t *testing.T) {
		repo := apache.Repository(t, "public.git")
		git := harness.NewGit(t)
		helper := git.UseHelper(t, harness.Alice, harness.AliceSecret)
		work := git.Clone(t, "http://"+tap.Addr+"/git/public.git")
		harness.WriteRandom(t, filepath.Join(work, "big.bin"), 3<<20)
		git.Commit(t, work, "big")
		git.Run(t, work, "push", "origin", "main")
		if got, want := repo.Ref(t, "main"), git.Head(t, work); got != want {
			t.Errorf("main is at %s, want %s", got, want)
		}
		wantProbe(t, tap)
		if helper.Count(t, "store") == 0 || helper.Count(t, "erase") != 0 {
			t.Errorf("helper was asked %v, want a store and no erase", helper.Operations(t))
		}
	})
	t.Run("a held clone waits for its release", func(t *testing.T) {
		repo := apache.Repository(t, "slow.git")
		release := repo.Hold(t)
		h := harness.Hold(t, harness.Loopback(1), tap.Addr, "/git/slow.git", repo.Head)
		answered := make(chan error, 1)
		go func() {
			resp, body, err := h.Answer(time.Minute)
			if err == nil && (resp.StatusCode != http.StatusOK || len(body) < 100) {
				err = fmt.Errorf("%s with %d bytes", resp.Status, len(body))
			}
			answered <- err
		}()
		repo.WaitHeld(t, 1)
		select {
		case err := <-answered:
			t.Fatalf("answered while held: %v", err)
		default:
		}
		release()
		if err := <-answered; err != nil {
			t.Fatal(err)
		}
	})
	t.Run("git-lfs pushes and clones an object", func(t *testing.T) {
		apache.Repository(t, "private.git")
		lfsRoundTrip(t, "http://"+front+"/git/private.git")
	})
}

// wantProbe fails the test unless the tap saw the probe of 4 bytes and a chunked body of more than 3 MB after it.
func wantProbe(t *testing.T, tap *harness.Tap) {
	t.Helper()
	probes, chunked := 0, 0
	for _, r := range tap.Find("POST", "/git-receive-pack") {
		switch {
		case r.ContentLength == 4 && chunked == 0:
			probes++
		case r.Chunked && r.BodySize > 3<<20 && probes > 0:
			chunked++
		}
	}
	if probes == 0 || chunked != 1 {
		t.Errorf("recorded %d probes and %d chunked bodies of more than 3 MB after them, want at least 1 and exactly 1", probes, chunked)
	}
}
