package harness

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Buildbot is Debian's Buildbot master, unchanged, with its GitHub hook in strict mode at /change_hook/github and one worker. It
// knows the SHA-1 signature only. Every change it takes starts a build of the builder "b".
//
// Debian ships no web interface for it, without which the master serves no HTTP; the few lines of an empty one come from here.
// For pull requests the hook asks GitHub for the commit: that address is one of the test's own.
type Buildbot struct {
	*Process
	Addr, dir string
	env       []string
}

// BuildbotHook is the path of the hook.
const BuildbotHook = "/change_hook/github"

// StartBuildbot makes a master and a worker and starts both.
func StartBuildbot(tb testing.TB, secret string) *Buildbot {
	tb.Helper()
	Tool(tb, "buildbot")
	Tool(tb, "buildbot-worker")
	File(tb, "/usr/lib/python3/dist-packages/treq", "python3-treq")
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/files") {
			fmt.Fprint(w, `[{"filename":"f"}]`)
			return
		}
		fmt.Fprint(w, `{"commit":{"message":"m"}}`)
	}))
	tb.Cleanup(api.Close)
	dir := TempDir(tb)
	b := &Buildbot{Addr: Addr(tb), dir: dir, env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "PYTHONPATH=" + filepath.Join(dir, "plugin")}}
	b.plugin(tb)
	run(tb, dir, b.env, Tool(tb, "buildbot"), "create-master", "-q", filepath.Join(dir, "master"))
	workers := Addr(tb)
	_, port, _ := strings.Cut(b.Addr, ":")
	_, workerPort, _ := strings.Cut(workers, ":")
	writeFile(tb, filepath.Join(dir, "master", "master.cfg"), strings.NewReplacer("@PORT@", port, "@WORKERS@", workerPort,
		"@SECRET@", secret, "@API@", api.URL).Replace(masterConfig), 0o600)
	b.Start(tb)
	run(tb, dir, b.env, Tool(tb, "buildbot-worker"), "create-worker", "-q", filepath.Join(dir, "worker"), workers, "w1", "pw")
	worker := exec.Command(Tool(tb, "buildbot-worker"), "start", "--nodaemon", filepath.Join(dir, "worker"))
	worker.Env = b.env
	startProcess(tb, "buildbot worker", worker)
	return b
}

// Start starts the master again, after Stop or Kill.
func (b *Buildbot) Start(tb testing.TB) {
	tb.Helper()
	master := filepath.Join(b.dir, "master")
	os.Remove(filepath.Join(master, "twistd.pid"))
	cmd := exec.Command(Tool(tb, "buildbot"), "start", "--nodaemon", master)
	cmd.Env = b.env
	b.Process = startProcess(tb, "buildbot", cmd)
	b.waitReady(tb, 90*time.Second, func() error { return answers("http://" + b.Addr + "/api/v2/builders") })
}

// plugin writes the smallest web interface that the master accepts.
func (b *Buildbot) plugin(tb testing.TB) {
	for name, content := range map[string]string{
		"stub_www/static/index.html": "<html></html>",
		"stub_www/__init__.py": `import os
from twisted.web import resource
class App:
    description, ui, version = "stub", False, "1.0"
    resource = resource.Resource()
    static_dir = os.path.join(os.path.dirname(__file__), "static")
ep = App()
`,
		"stub_www-1.0.dist-info/METADATA":         "Metadata-Version: 2.1\nName: stub-www\nVersion: 1.0\n",
		"stub_www-1.0.dist-info/entry_points.txt": "[buildbot.www]\nbase = stub_www:ep\n",
	} {
		path := filepath.Join(b.dir, "plugin", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			tb.Fatal(err)
		}
		writeFile(tb, path, content, 0o644)
	}
}

const masterConfig = `from buildbot.plugins import schedulers, util, steps, worker
c = BuildmasterConfig = {}
c['workers'] = [worker.Worker("w1", "pw")]
c['protocols'] = {'pb': {'port': "tcp:@WORKERS@:interface=127.0.0.1"}}
c['schedulers'] = [schedulers.AnyBranchScheduler(name="all", builderNames=["b"])]
f = util.BuildFactory([steps.ShellCommand(command=["true"])])
c['builders'] = [util.BuilderConfig(name="b", workernames=["w1"], factory=f, collapseRequests=False)]
c['db'] = {'db_url': "sqlite:///state.sqlite"}
c['buildbotURL'] = "http://127.0.0.1:@PORT@/"
c['buildbotNetUsageData'] = None
c['www'] = {'port': "tcp:@PORT@:interface=127.0.0.1", 'change_hook_dialects': {'github': {
    'secret': "@SECRET@", 'strict': True, 'github_api_endpoint': "@API@"}}}
`

// Change is a change that the master took from a hook.
type Change struct {
	Revision string `json:"revision"`
	Branch   string `json:"branch"`
	Category string `json:"category"`
	Author   string `json:"author"`
	Project  string `json:"project"`
	ID       int    `json:"changeid"`
}

// Changes returns the changes that the master took, in order.
func (b *Buildbot) Changes(tb testing.TB) []Change {
	tb.Helper()
	var out struct{ Changes []Change }
	b.api(tb, "changes", &out)
	slices.SortFunc(out.Changes, func(a, b Change) int { return a.ID - b.ID })
	return out.Changes
}

// Built returns how many builds have ended well.
func (b *Buildbot) Built(tb testing.TB) int {
	tb.Helper()
	var out struct {
		Builds []struct {
			Complete bool
			Results  *int
		}
	}
	b.api(tb, "builds", &out)
	n := 0
	for _, build := range out.Builds {
		if build.Complete && build.Results != nil && *build.Results == 0 {
			n++
		}
	}
	return n
}

func (b *Buildbot) api(tb testing.TB, what string, into any) {
	tb.Helper()
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + b.Addr + "/api/v2/" + what)
	if err != nil {
		tb.Fatalf("buildbot: %v", err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		tb.Fatalf("buildbot %s: %s: %v", what, resp.Status, err)
	}
}
