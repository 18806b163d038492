package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-admission/gateway/integration/harness"
)

// TestGitoliteRefusalsProveNothing: gitolite answers 200 to everything, with an error packet for what it denies. Neither a
// made-up credential nor a reader who asks to push is proven by such an answer; a genuine push is.
func TestGitoliteRefusalsProveNothing(t *testing.T) {
	up := harness.StartGitolite(t)
	port := harness.Port(t)
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	g := harness.StartGateway(t, harness.Config{Sites: fmt.Sprintf("http://:%d {\n admission\n %s\n}", port, proxyTo(up.Addr, ""))})
	push := func(path, user, secret string) (status, body string) {
		resp, b := harness.Ask(t, harness.Loopback(1), addr, request("GET", path+"/info/refs?service=git-receive-pack", basicHeader(user, secret)))
		return resp.Status, b
	}
	for _, c := range []struct{ path, user, secret string }{
		{"/anon/public", "x", "made-up"},
		{"/anon/private", "x", "made-up-too"},
		{"/anon/nothing", harness.Alice, harness.AliceSecret}, // genuine, and denied all the same
		{"/git/private", harness.Bob, harness.BobSecret},
		{"/git/nothing", harness.Bob, harness.BobSecret},
	} {
		for range 2 {
			status, body := push(c.path, c.user, c.secret)
			if !strings.HasPrefix(status, "200") || !strings.Contains(body, "ERR ") {
				t.Errorf("%s as %s: %s %.80q, so the test says nothing", c.path, c.user, status, body)
			}
		}
	}
	if got := g.Class(t, "push"); got.Decisions["admitted"] != 0 {
		t.Errorf("a refusal proved something: %v", got.Decisions)
	}

	git := harness.NewGit(t)
	helper := git.UseHelper(t, harness.Alice, harness.AliceSecret)
	work := harness.TempDir(t)
	git.Run(t, work, "init", "-q", "-b", "main")
	git.Commit(t, work, "first")
	git.Run(t, work, "push", "-q", "http://"+addr+"/git/private", "main")
	wantNoErase(t, helper)
	if got := g.Class(t, "push"); got.Decisions["admitted"] == 0 {
		t.Errorf("the genuine push was not proven: %v", got.Decisions)
	}
	// Bob reads with his own, proven by what he may read.
	reader := harness.NewGit(t)
	reader.UseHelper(t, harness.Bob, harness.BobSecret)
	reader.Clone(t, "http://"+addr+"/git/private")
	if got := g.Class(t, "read"); got.Decisions["admitted"] == 0 {
		t.Errorf("the genuine reader was not proven: %v", got.Decisions)
	}
}
