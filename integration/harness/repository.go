package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Repository is a bare repository served by an Apache.
type Repository struct {
	Name string // "public.git"
	Path string // of the directory
	Head string // object name of branch main when it was made
}

// Repository makes a bare repository with one commit on branch main.
func (a *Apache) Repository(tb testing.TB, name string) *Repository {
	tb.Helper()
	r := &Repository{Name: name, Path: filepath.Join(a.Dir, "repos", name)}
	git := NewGit(tb)
	git.Run(tb, a.Dir, "init", "-q", "--bare", "-b", "main", r.Path)
	git.Run(tb, r.Path, "config", "http.receivepack", "true")
	work := TempDir(tb)
	git.Run(tb, work, "init", "-q", "-b", "main")
	for i := range 5 {
		writeFile(tb, filepath.Join(work, fmt.Sprintf("file%d.txt", i)), strings.Repeat(fmt.Sprintf("line %d\n", i), 100), 0o644)
	}
	git.Commit(tb, work, "seed")
	git.Run(tb, work, "push", "-q", r.Path, "main")
	r.Head = r.Ref(tb, "main")
	r.giveAway(tb)
	return r
}

// giveAway makes the repository belong to the user the server runs as.
func (r *Repository) giveAway(tb testing.TB) {
	if os.Geteuid() == 0 {
		run(tb, r.Path, nil, "chown", "-R", "www-data:www-data", r.Path)
	}
}

// Ref returns the object name of a branch, "" when there is no such branch.
func (r *Repository) Ref(tb testing.TB, branch string) string {
	tb.Helper()
	res := NewGit(tb).Try(r.Path, "rev-parse", "-q", "--verify", "refs/heads/"+branch)
	return strings.TrimSpace(res.Stdout)
}

// Hold makes every upload-pack of this repository wait before it packs objects, as a clone of a huge repository would. The
// waiting ones and later ones go on when release is called, or at the end of the test.
func (r *Repository) Hold(tb testing.TB) (release func()) {
	tb.Helper()
	path := filepath.Join(r.Path, "hold.lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		tb.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		tb.Fatal(err)
	}
	release = func() { f.Close() } // closing twice is an error nobody needs
	tb.Cleanup(release)
	return release
}

// Held counts the upload-packs that wait for the release.
func (r *Repository) Held(tb testing.TB) int {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(r.Path, "held.*"))
	if err != nil {
		tb.Fatal(err)
	}
	return len(files)
}

// WaitHeld waits until exactly n upload-packs wait for the release.
func (r *Repository) WaitHeld(tb testing.TB, n int) {
	tb.Helper()
	Eventually(tb, time.Minute, fmt.Sprintf("%d clones of %s held at the server", n, r.Name), func() error {
		if held := r.Held(tb); held != n {
			return fmt.Errorf("%d are", held)
		}
		return nil
	})
}

// Loosen puts n objects into the repository that no pack holds, as a server without maintenance has them: a clone of it is
// seconds of work before its first byte.
func (r *Repository) Loosen(tb testing.TB, n int) {
	tb.Helper()
	git := NewGit(tb)
	git.Run(tb, r.Path, "config", "receive.unpackLimit", fmt.Sprint(2*n))
	work := git.Clone(tb, r.Path)
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "line %d of all the files before\n", i)
		start := max(0, text.Len()-16<<10)
		writeFile(tb, filepath.Join(work, fmt.Sprintf("loose%d.txt", i)), fmt.Sprintln(i)+text.String()[start:], 0o644)
	}
	git.Commit(tb, work, "badly packed")
	git.Run(tb, work, "push", "-q", r.Path, "main")
	r.Head = r.Ref(tb, "main")
	r.giveAway(tb)
}

// Packing counts the git pack-objects processes that work in this repository now. A process that ended meanwhile is none.
func (r *Repository) Packing(tb testing.TB) (n int) {
	tb.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		tb.Fatal(err)
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(line), "pack-objects\x00--revs") {
			continue
		}
		if dir, err := os.Readlink(filepath.Join(filepath.Dir(file), "cwd")); err == nil && dir == r.Path {
			n++
		}
	}
	return n
}
