package harness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// gitLimit bounds one run of git; what the gateway lets wait is far below it.
const gitLimit = 3 * time.Minute

// Git is a git client of its own: an empty home, no system configuration, no prompt, no proxy.
type Git struct {
	Home string
	env  []string
}

// Result is the end of one command.
type Result struct {
	Args   []string
	Stdout string
	Stderr string
	Code   int // -1 when it was killed by the time limit
}

func (r Result) String() string {
	return fmt.Sprintf("git %s: exit %d\nstdout: %s\nstderr: %s", strings.Join(r.Args, " "), r.Code, r.Stdout, r.Stderr)
}

// NewGit returns a client with its own home directory.
func NewGit(tb testing.TB) *Git {
	tb.Helper()
	Tool(tb, "git")
	home := TempDir(tb)
	g := &Git{Home: home, env: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_CONFIG_HOME=" + filepath.Join(home, ".config"), "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "SSH_ASKPASS=", "no_proxy=*",
	}}
	writeFile(tb, filepath.Join(home, ".gitconfig"),
		"[user]\n\tname = Test\n\temail = test@example.invalid\n[init]\n\tdefaultBranch = main\n[gc]\n\tauto = 0\n[safe]\n\tdirectory = *\n[advice]\n\tdetachedHead = false\n", 0o644)
	return g
}

// Try runs git in dir and returns how it ended.
func (g *Git) Try(dir string, args ...string) Result {
	ctx, cancel := context.WithTimeout(context.Background(), gitLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Env = dir, g.env
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	res := Result{Args: args}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(&stderr, err)
	}
	res.Stdout, res.Stderr, res.Code = stdout.String(), stderr.String(), -1
	if cmd.ProcessState != nil {
		res.Code = cmd.ProcessState.ExitCode()
	}
	return res
}

// Run runs git in dir, fails the test when git fails, and returns its standard output.
func (g *Git) Run(tb testing.TB, dir string, args ...string) string {
	tb.Helper()
	res := g.Try(dir, args...)
	if res.Code != 0 {
		tb.Fatal(res)
	}
	return res.Stdout
}

// Config sets a value in the client's own configuration.
func (g *Git) Config(tb testing.TB, key, value string) {
	tb.Helper()
	g.Run(tb, g.Home, "config", "--global", "--add", key, value)
}

// Clone clones url into a new directory.
func (g *Git) Clone(tb testing.TB, url string) string {
	tb.Helper()
	dir := filepath.Join(TempDir(tb), "work")
	g.Run(tb, g.Home, "clone", "-q", url, dir)
	return dir
}

// Commit adds everything in the work tree dir and commits it.
func (g *Git) Commit(tb testing.TB, dir, message string) {
	tb.Helper()
	g.Run(tb, dir, "add", "-A")
	g.Run(tb, dir, "commit", "-q", "--allow-empty", "-m", message)
}

// Head returns the object name of the work tree's HEAD.
func (g *Git) Head(tb testing.TB, dir string) string {
	tb.Helper()
	return strings.TrimSpace(g.Run(tb, dir, "rev-parse", "HEAD"))
}

// WriteRandom writes size bytes that cannot be compressed.
func WriteRandom(tb testing.TB, path string, size int) {
	tb.Helper()
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(rand.Uint32())
	}
	b := make([]byte, size)
	rand.NewChaCha8(seed).Read(b)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		tb.Fatal(err)
	}
}

var gitVersion = regexp.MustCompile(`(\d+)\.(\d+)`)

// GitAtLeast reports whether the installed git is of this version or newer.
func GitAtLeast(tb testing.TB, major, minor int) bool {
	tb.Helper()
	m := gitVersion.FindStringSubmatch(run(tb, "/", nil, "git", "version"))
	if m == nil {
		tb.Fatal("git version: no number in its answer")
	}
	a, _ := strconv.Atoi(m[1])
	b, _ := strconv.Atoi(m[2])
	return a > major || a == major && b >= minor
}

// run runs a helper command of the harness and fails the test when it fails.
func run(tb testing.TB, dir string, env []string, command string, args ...string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), gitLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if err != nil {
		tb.Fatalf("%s %s: %v\n%s", command, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Env is the environment the client's commands run in.
func (g *Git) Env() []string { return append([]string(nil), g.env...) }
