package integration

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// demoCommand returns the demo of cmd/xcaddy-build with the gateway under test instead of one it would build, and with a
// directory of its own for everything it writes.
func demoCommand(t *testing.T, arguments ...string) (cmd *exec.Cmd, said *strings.Builder, dir string) {
	t.Helper()
	dir = harness.TempDir(t)
	tool := filepath.Join(harness.TempDir(t), "xcaddy-build")
	build := exec.Command("go", "build", "-race", "-o", tool, "./cmd/xcaddy-build")
	build.Dir = harness.Root(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, tool, append([]string{"demo", "--binary", harness.Binary(t)}, arguments...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	said = &strings.Builder{}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.WaitDelay = 5 * time.Second
	return cmd, said, dir
}

var demoRow = regexp.MustCompile(`(?m)^ *((?:quiet|flood), (?:with|without) the gateway) +(\d+) +(\d+) .* (\d+) of 16$`)

// TestDemo runs the demo of the README with short phases: with the gateway every push passes the flood.
func TestDemo(t *testing.T) {
	cmd, said, dir := demoCommand(t, "--phase", "2s")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	type pushes struct{ tried, passed, peak int }
	got := map[string]pushes{}
	for _, m := range demoRow.FindAllStringSubmatch(said.String(), -1) {
		tried, _ := strconv.Atoi(m[2])
		passed, _ := strconv.Atoi(m[3])
		peak, _ := strconv.Atoi(m[4])
		got[m[1]] = pushes{tried, passed, peak}
	}
	for _, row := range []string{"quiet, without the gateway", "quiet, with the gateway", "flood, with the gateway"} {
		if p := got[row]; p.tried == 0 || p.passed != p.tried {
			t.Errorf("%s: %d of %d pushes passed, want all of some", row, p.passed, p.tried)
		}
	}
	// What passes without the gateway depends on how busy the machine is: it is shown, not asserted. That the crowd takes
	// every worker then, and not with the gateway, does not.
	p := got["flood, without the gateway"]
	if p.tried == 0 || p.peak != 16 {
		t.Errorf("flood, without the gateway: %d pushes tried, %d of 16 workers busy at most; want some, and 16", p.tried, p.peak)
	}
	if p := got["flood, with the gateway"]; p.peak >= 16 {
		t.Errorf("flood, with the gateway: %d of 16 workers busy at most, want fewer: the crowd has 8 places and two first contacts", p.peak)
	}
	t.Logf("flood, without the gateway: %d of %d pushes passed", p.passed, p.tried)
	wantNothingLeft(t, dir)
	if t.Failed() {
		t.Log(said)
	}
}

// TestDemoCleansUpWhenInterrupted sends the demo what Ctrl-C sends, while the flood runs, and to nobody but itself.
func TestDemoCleansUpWhenInterrupted(t *testing.T) {
	cmd, _, dir := demoCommand(t, "--phase", "1s")
	started := make(chan struct{})
	cmd.Stdout = &awaited{text: "flood, without", found: started}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-started:
	case err := <-ended:
		t.Fatalf("ended before the flood: %v", err)
	}
	if len(processesOf(dir)) == 0 {
		t.Error("no process of the demo's found while it runs: the test would not see one left")
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := <-ended; !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Errorf("ended with %v, want exit status 130", err)
	}
	wantNothingLeft(t, dir)
}

// wantNothingLeft fails the test when the demo left a file or a process.
func wantNothingLeft(t *testing.T, dir string) {
	t.Helper()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left in %s: %v, %v", dir, entries, err)
	}
	if left := processesOf(dir); len(left) > 0 {
		t.Errorf("still running: %q", left)
	}
}

// processesOf returns the command lines of processes that name dir there or in their environment; this process and the demo
// itself, which got it as TMPDIR, are not among them.
func processesOf(dir string) (found []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, _ := os.ReadFile(file)
		environment, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "environ"))
		if strings.Contains(string(line)+string(environment), dir+"/") {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// awaited closes found when text has been written to it.
type awaited struct {
	text  string
	found chan struct{}
	seen  string
}

func (a *awaited) Write(p []byte) (int, error) {
	before := strings.Contains(a.seen, a.text)
	a.seen += string(p)
	if !before && strings.Contains(a.seen, a.text) {
		close(a.found)
	}
	return len(p), nil
}
