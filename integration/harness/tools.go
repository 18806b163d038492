package harness

import (
	"os"
	"os/exec"
	"testing"
)

// packages names, for every command the tests run, the Debian package that brings it.
var packages = map[string]string{
	"apache2":  "apache2-bin",
	"htpasswd": "apache2-utils",
	"git":      "git",
	"git-lfs":  "git-lfs",
	"curl":     "curl",
	"flock":    "util-linux",
	"setpriv":  "util-linux",
	"gitolite": "gitolite3",
	"webhook":  "webhook",
	"buildbot": "buildbot",
	"node":     "nodejs",
}

// Tool returns the path of command. A missing command fails the test with the name of the package to install: a test that
// cannot run has not passed.
func Tool(tb testing.TB, command string) string {
	tb.Helper()
	if path, err := exec.LookPath(command); err == nil {
		return path
	}
	for _, dir := range []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		if info, err := os.Stat(dir + "/" + command); err == nil && info.Mode()&0o111 != 0 {
			return dir + "/" + command
		}
	}
	name := packages[command]
	if name == "" {
		name = command
	}
	tb.Fatalf("missing command %q: install package %q (make deps does, as root)", command, name)
	return ""
}

// File returns path, and fails the test with the name of the Debian package that brings it when it is missing.
func File(tb testing.TB, path, debianPackage string) string {
	tb.Helper()
	if _, err := os.Stat(path); err != nil {
		tb.Fatalf("missing %s: install package %q (make deps does, as root)", path, debianPackage)
	}
	return path
}

// TempDir is like testing.TB.TempDir with two differences: the path is short enough for a unix socket, and other users may
// enter it, which a server that gives up root needs.
func TempDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "gw")
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
