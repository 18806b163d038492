package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/caddy-admission/gateway/integration/harness"
)

// lfsRoundTrip pushes a commit with one LFS object to url and clones it back elsewhere.
func lfsRoundTrip(t *testing.T, url string) {
	t.Helper()
	harness.Tool(t, "git-lfs")
	git := harness.NewGit(t)
	helper := git.UseHelper(t, harness.Alice, harness.AliceSecret)
	git.Run(t, git.Home, "lfs", "install", "--skip-repo")
	work := git.Clone(t, url)
	git.Run(t, work, "lfs", "track", "*.bin")
	harness.WriteRandom(t, filepath.Join(work, "asset.bin"), 200_000)
	git.Commit(t, work, "asset")
	git.Run(t, work, "push", "origin", "main")

	other := git.Clone(t, url)
	got, err := os.ReadFile(filepath.Join(other, "asset.bin"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(work, "asset.bin"))
	if err != nil {
		t.Fatal(err)
	}
	if len(want) != 200_000 || !bytes.Equal(got, want) {
		t.Errorf("the clone has %d bytes of the object, which are not the %d pushed", len(got), len(want))
	}
	if helper.Count(t, "get") == 0 || helper.Count(t, "erase") != 0 {
		t.Errorf("helper was asked %v, want a get and no erase", helper.Operations(t))
	}
}
