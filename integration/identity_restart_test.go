package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/caddy-admission/gateway/integration/harness"
)

// credentialFirst is a kind of client that sends its credential with the first request and never asks without.
type credentialFirst struct {
	// read fetches from private.git, and push pushes to public.git, a commit of its own.
	read, push func(t *testing.T)
	// classes are those that must have served it as proven.
	classes []string
}

// TestCredentialFirst: clients that never send the bare request reach push and read while anonymous fetches hold every place
// they can have; and again right after a restart, when every proof has died with the process. Only the network they come from
// is remembered, in a file without a credential that nobody else may read.
func TestCredentialFirst(t *testing.T) {
	const directive = "admission {\n total 16\n}"
	s := newSite(t, directive)
	slow := s.apache.Repository(t, "slow.git")
	public, private := s.apache.Repository(t, "public.git"), s.apache.Repository(t, "private.git")
	kinds := map[string]credentialFirst{
		"extraHeader": s.extraHeader(t, public, private),
		"git-lfs":     s.gitLFS(t, public),
		"go-git":      s.goGit(t, public, private),
	}
	for _, when := range []string{"from a new network", "right after a restart"} {
		for name, kind := range kinds {
			t.Run(name+" "+when, func(t *testing.T) {
				s.Stop(t)
				if when == "from a new network" {
					forgetGroups(t, s)
				} else {
					wantGroupsKept(t, s)
				}
				s.Start(t, s.config(directive))
				places := sharedPlaces(t, s)
				release := s.occupy(t, slow, 1, places)
				defer release()
				kind.read(t)
				kind.push(t)
				for _, class := range kind.classes {
					if got := s.Class(t, class); got.Decisions["admitted"]+got.Decisions["waited"] == 0 {
						t.Errorf("nobody was proven for %s: %v", class, got.Decisions)
					}
				}
				if got := s.Class(t, "anonymous"); got.InUse != places || got.Refused() != 0 {
					t.Errorf("anonymous holds %d of %d, or refused the client: %v", got.InUse, places, got.Decisions)
				}
			})
		}
	}
}

// forgetGroups removes what a stopped gateway has kept of networks.
func forgetGroups(t *testing.T, s *site) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(s.Dir, "xdg", "caddy", "admission")); err != nil {
		t.Fatal(err)
	}
}

// wantGroupsKept wants the file of remembered networks as a stopped gateway leaves it.
func wantGroupsKept(t *testing.T, s *site) {
	t.Helper()
	groups, err := filepath.Glob(filepath.Join(s.Dir, "xdg", "caddy", "admission", "*.groups"))
	if err != nil || len(groups) != 1 {
		t.Fatalf("files of remembered networks: %v %v", groups, err)
	}
	info, err := os.Stat(groups[0])
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() == 0 {
		t.Errorf("%v %v, want mode 0600", info, err)
	}
	if b, err := os.ReadFile(groups[0]); err != nil || bytes.Contains(b, []byte(harness.AliceSecret)) {
		t.Errorf("the file holds a credential, or cannot be read: %v", err)
	}
}

// extraHeader is git as actions/checkout sets it up.
func (s *site) extraHeader(t *testing.T, public, private *harness.Repository) credentialFirst {
	git := harness.NewGit(t)
	git.Config(t, "http.extraHeader", basicHeader(harness.Alice, harness.AliceSecret))
	work := s.workTree(t, git, public, s.url(public.Name))
	return credentialFirst{
		classes: []string{"push", "read"},
		read:    func(t *testing.T) { git.Clone(t, s.url(private.Name)) },
		push: func(t *testing.T) {
			git.Run(t, work, "pull", "-q", "--rebase", public.Path, "main")
			git.Commit(t, work, "with a header")
			git.Run(t, work, "push", "-q", "origin", "HEAD:main")
			wantPushed(t, git, work, public, "main")
		},
	}
}

// gitLFS fetches and pushes objects with git-lfs alone, which takes the header from git's configuration; then git pushes the
// commit that points at them.
func (s *site) gitLFS(t *testing.T, public *harness.Repository) credentialFirst {
	harness.Tool(t, "git-lfs")
	git := harness.NewGit(t)
	git.Run(t, git.Home, "lfs", "install", "--skip-repo")
	git.Config(t, "http.extraHeader", basicHeader(harness.Alice, harness.AliceSecret))
	work := s.workTree(t, git, public, s.url(public.Name))
	git.Run(t, work, "config", "lfs.url", s.url(public.Name)+"/info/lfs")
	git.Run(t, work, "lfs", "track", "*.bin")
	asset := filepath.Join(work, "asset.bin")
	harness.WriteRandom(t, asset, 200_000)
	git.Commit(t, work, "asset")
	git.Run(t, work, "lfs", "push", "origin", "HEAD")
	return credentialFirst{
		classes: []string{"push", "read", "lfs"},
		read: func(t *testing.T) {
			if err := os.RemoveAll(filepath.Join(work, ".git", "lfs", "objects")); err != nil {
				t.Fatal(err)
			}
			git.Run(t, work, "lfs", "fetch", "origin", "HEAD")
			git.Run(t, work, "lfs", "fsck")
		},
		push: func(t *testing.T) {
			git.Run(t, work, "pull", "-q", "--rebase", public.Path, "main")
			harness.WriteRandom(t, asset, 200_000)
			git.Commit(t, work, "another asset")
			git.Run(t, work, "push", "-q", "origin", "HEAD:main")
			wantPushed(t, git, work, public, "main")
		},
	}
}

// goGit is a program that uses the library go-git.
func (s *site) goGit(t *testing.T, public, private *harness.Repository) credentialFirst {
	client := harness.NewGoGit(t, harness.Alice, harness.AliceSecret)
	git := harness.NewGit(t)
	return credentialFirst{
		classes: []string{"push", "read"},
		read:    func(t *testing.T) { client.Clone(t, s.url(private.Name)) },
		push: func(t *testing.T) {
			work := client.Clone(t, s.url(public.Name))
			git.Commit(t, work, "with go-git")
			client.Push(t, work)
			wantPushed(t, git, work, public, "main")
		},
	}
}
