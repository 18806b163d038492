package integration

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/caddy-admission/gateway/integration/harness"
)

// TestBurstFromOneAddress lets a CI system start 100 clones of one private repository at the same moment, from one address,
// through a class with 16 places: they wait for each other, and every one succeeds.
func TestBurstFromOneAddress(t *testing.T) {
	const clones = 100
	s := newSite(t, `admission {
		class read {
			max 16
		}
	}`)
	repo := s.apache.Repository(t, "private-burst.git")
	git := harness.NewGit(t)
	url := "http://" + harness.Bob + ":" + harness.BobSecret + "@" + s.addr + path(repo)
	dir := harness.TempDir(t)
	var running sync.WaitGroup
	for i := range clones {
		running.Go(func() {
			if r := git.Try(dir, "clone", "-q", url, fmt.Sprintf("work-%d", i)); r.Code != 0 {
				t.Errorf("clone %d: %v", i, r)
			}
		})
	}
	running.Wait()
	for class, c := range s.Pool(t).Classes {
		if c.Refused() > 0 {
			t.Errorf("%d requests of class %s were refused, want none: %v", c.Refused(), class, c.Decisions)
		}
	}
	read := s.Class(t, "read")
	if read.Permits() < clones {
		t.Errorf("decisions of class read are %v, want at least one admission per clone", read.Decisions)
	}
	t.Logf("class read: %v", read.Decisions)
}

// TestParallelClientsOfOneAddress runs what git itself does in parallel: updating eight submodules with eight jobs, and
// fetching eight remotes with eight jobs, without a credential and with every default.
func TestParallelClientsOfOneAddress(t *testing.T) {
	s := newSite(t, "admission")
	git := harness.NewGit(t)
	git.Config(t, "protocol.file.allow", "always")
	parent := s.apache.Repository(t, "public-parent.git")
	work := s.workTree(t, git, parent, s.url(parent.Name))
	many := git.Clone(t, parent.Path)
	var remotes []string
	for i := range 8 {
		remotes = append(remotes, fmt.Sprintf("remote%d", i))
		part := s.apache.Repository(t, fmt.Sprintf("public-part%d.git", i))
		git.Run(t, work, "submodule", "--quiet", "add", s.url(part.Name), fmt.Sprintf("part%d", i))
		git.Run(t, many, "remote", "add", remotes[i], s.url(part.Name))
	}
	git.Commit(t, work, "eight parts")
	git.Run(t, work, "push", "-q", parent.Path, "main")

	fresh := filepath.Join(harness.TempDir(t), "work")
	git.Run(t, git.Home, "clone", "-q", s.url(parent.Name), fresh)
	git.Run(t, fresh, "submodule", "--quiet", "update", "--init", "--jobs", "8")
	git.Run(t, many, append([]string{"fetch", "-q", "--multiple", "-j", "8"}, remotes...)...)
	for i := range 8 {
		git.Run(t, filepath.Join(fresh, fmt.Sprintf("part%d", i)), "rev-parse", "HEAD")
		git.Run(t, many, "rev-parse", "refs/remotes/"+remotes[i]+"/main")
	}
	for class, c := range s.Pool(t).Classes {
		if c.Refused() > 0 {
			t.Errorf("%d requests of class %s were refused, want none: %v", c.Refused(), class, c.Decisions)
		}
	}
}
