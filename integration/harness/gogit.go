package harness

import (
	"os"
	"path/filepath"
	"testing"
)

// GoGit is a client made of the library go-git, which sends its credential with every request, the first included.
type GoGit struct {
	path string
	env  []string
}

// NewGoGit builds the client from its own module, integration/gogit.
func NewGoGit(tb testing.TB, user, secret string) *GoGit {
	tb.Helper()
	path := filepath.Join(TempDir(tb), "gogit")
	run(tb, filepath.Join(Root(tb), "integration", "gogit"), os.Environ(), "go", "build", "-o", path, ".")
	return &GoGit{path: path, env: append(NewGit(tb).Env(), "GOGIT_USER="+user, "GOGIT_SECRET="+secret)}
}

// Clone clones url into a new directory.
func (g *GoGit) Clone(tb testing.TB, url string) string {
	tb.Helper()
	dir := filepath.Join(TempDir(tb), "work")
	run(tb, "/", g.env, g.path, "clone", url, dir)
	return dir
}

// Push pushes the branches of the work tree to where it was cloned from.
func (g *GoGit) Push(tb testing.TB, dir string) {
	tb.Helper()
	run(tb, "/", g.env, g.path, "push", dir)
}
