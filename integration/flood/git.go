package flood

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Git runs the real client with nobody's settings but its own.
type Git struct {
	Home string
}

func (g *Git) command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := command(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + g.Home, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=dev", "GIT_AUTHOR_EMAIL=dev@example.invalid",
		"GIT_COMMITTER_NAME=dev", "GIT_COMMITTER_EMAIL=dev@example.invalid", "LC_ALL=C",
	}
	return cmd
}

func (g *Git) run(ctx context.Context, dir string, args ...string) error {
	out, err := g.command(ctx, dir, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(out))
	}
	return nil
}

// Pusher is one person with a work tree who pushes again and again.
type Pusher struct {
	Name string
	git  Git
	dir  string
	n    int
}

// NewPusher makes a work tree below home with a history of its own; it talks to
// nobody.
func NewPusher(ctx context.Context, home, name string) (*Pusher, error) {
	p := &Pusher{Name: name, dir: filepath.Join(home, name), git: Git{Home: home}}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, err
	}
	return p, p.git.run(ctx, p.dir, "init", "-q", "-b", name)
}

// Attempt is how one push went.
type Attempt struct {
	OK   bool
	Took time.Duration
	Said string // git's output when it failed
}

// Push commits a little and pushes it to the branch of its name at url, which
// may hold a credential, within limit. An attempt that ctx cut off
// is not OK, whatever it would have become.
func (p *Pusher) Push(ctx context.Context, url string, limit time.Duration) Attempt {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p.n++
	if err := os.WriteFile(filepath.Join(p.dir, "log"), fmt.Appendf(nil, "%s %d\n", p.Name, p.n), 0o600); err != nil {
		return Attempt{Said: err.Error()}
	}
	if err := p.git.run(ctx, p.dir, "add", "."); err != nil {
		return Attempt{Said: err.Error()}
	}
	if err := p.git.run(ctx, p.dir, "commit", "-q", "-m", fmt.Sprint(p.n)); err != nil {
		return Attempt{Said: err.Error()}
	}
	start := time.Now()
	err := p.git.run(ctx, p.dir, "push", "-q", url, p.Name)
	a := Attempt{OK: err == nil, Took: time.Since(start)}
	if err != nil {
		a.Said = err.Error()
	}
	return a
}

// WithCredential puts a user and password into an http URL.
func WithCredential(url, user, password string) string {
	return strings.Replace(url, "http://", "http://"+user+":"+strings.ReplaceAll(password, " ", "%20")+"@", 1)
}

func writeRandom(path string, size int) error {
	b := make([]byte, size)
	_, _ = rand.Read(b)
	return os.WriteFile(path, b, 0o600)
}
