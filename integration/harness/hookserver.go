package harness

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// HookServer is Debian's `webhook`, unchanged, with HMAC rules of its own. It has a hook for GitHub's header (/hooks/github), for
// Gitea's (/hooks/gitea) and for GitHub's old one (/hooks/sha1); each one that fires appends a line to a file.
type HookServer struct {
	*Process
	Addr string
	dir  string
}

// StartHookServer starts one whose hooks all have the same secret.
func StartHookServer(tb testing.TB, secret string) *HookServer {
	tb.Helper()
	dir := TempDir(tb)
	h := &HookServer{Addr: Addr(tb), dir: dir}
	writeFile(tb, filepath.Join(dir, "run.sh"), "#!/bin/sh\necho \"$1\" >> "+filepath.Join(dir, "fired")+"\n", 0o755)
	var hooks []string
	for id, rule := range map[string][2]string{
		"github": {"payload-hmac-sha256", "X-Hub-Signature-256"},
		"sha1":   {"payload-hmac-sha1", "X-Hub-Signature"},
		"gitea":  {"payload-hmac-sha256", "X-Gitea-Signature"},
	} {
		hooks = append(hooks, fmt.Sprintf(`{"id":%[1]q,"execute-command":%[2]q,"trigger-rule-mismatch-http-response-code":403,
"pass-arguments-to-command":[{"source":"string","name":%[1]q}],
"trigger-rule":{"match":{"type":%[3]q,"secret":%[4]q,"parameter":{"source":"header","name":%[5]q}}}}`,
			id, filepath.Join(dir, "run.sh"), rule[0], secret, rule[1]))
	}
	config := filepath.Join(dir, "hooks.json")
	writeFile(tb, config, "["+strings.Join(hooks, ",\n")+"]", 0o600)
	h.start(tb, config)
	return h
}

func (h *HookServer) start(tb testing.TB, config string) {
	tb.Helper()
	host, port, _ := strings.Cut(h.Addr, ":")
	h.Process = startProcess(tb, "webhook", exec.Command(Tool(tb, "webhook"), "-nopanic", "-verbose", "-ip", host, "-port", port, "-hooks", config))
	h.waitReady(tb, 30*time.Second, func() error { return answers("http://" + h.Addr + "/") })
}

// Restart starts the server again, after Stop or Kill.
func (h *HookServer) Restart(tb testing.TB) {
	tb.Helper()
	h.start(tb, filepath.Join(h.dir, "hooks.json"))
}

// Fired returns the names of the hooks that ran their command, in order.
func (h *HookServer) Fired(tb testing.TB) []string {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join(h.dir, "fired"))
	if err != nil && !os.IsNotExist(err) {
		tb.Fatal(err)
	}
	return strings.Fields(string(raw))
}

// answers reports whether url is answered, with any status.
func answers(url string) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
