package integration

import (
	"bufio"

	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// bearerToken is what the authorising upstream takes for alice.
const bearerToken = "glpat-7f3a9c52e1"

// newBearerSite is a gateway in front of an upstream that knows Bearer tokens, which Apache does not: a small server
// translates the token and passes everything on to Apache.
func newBearerSite(t *testing.T) *site {
	t.Helper()
	s := &site{apache: harness.StartApache(t), port: harness.Port(t)}
	s.addr = fmt.Sprintf("127.0.0.1:%d", s.port)
	front := harness.StartBearer(t, s.apache.Addr, bearerToken)
	s.Gateway = harness.StartGateway(t, harness.Config{Sites: fmt.Sprintf(`http://:%d {
	admission
	%s
}`, s.port, proxyTo(front, ""))})
	return s
}

// TestBearerPush pushes with a token that a credential helper keeps, while every anonymous place is taken.
func TestBearerPush(t *testing.T) {
	s := newBearerSite(t)
	s.occupy(t, s.apache.Repository(t, "slow.git"), 1, anonymousPlaces)

	// Git before 2.46 takes no scheme from a helper; scripts of its day ask the helper and set the header.
	t.Run("token asked of the helper, sent as a header", func(t *testing.T) {
		repo := s.apache.Repository(t, "public-header.git")
		git := harness.NewGit(t)
		helper := git.UseHelper(t, harness.Alice, bearerToken)
		token := fillPassword(t, git, s.addr)
		git.Config(t, "http.extraHeader", "Authorization: Bearer "+token)
		work := s.workTree(t, git, repo, s.url(repo.Name))
		git.Commit(t, work, "with a token")
		git.Run(t, work, "push", "origin", "main")
		wantPushed(t, git, work, repo, "main")
		wantNoErase(t, helper)
	})

	// Git 2.46 and newer asks the helper after the 401 and then sends Bearer, with Expect on a large body. Where the
	// installed git is older, its requests are sent by the test instead.
	t.Run("scheme and token from the helper", func(t *testing.T) {
		repo := s.apache.Repository(t, "private-helper.git")
		git := harness.NewGit(t)
		work := s.workTree(t, git, repo, s.url(repo.Name))
		harness.WriteRandom(t, work+"/big.bin", 3<<20)
		git.Commit(t, work, "large, with a token")
		if harness.GitAtLeast(t, 2, 46) {
			helper := git.UseBearerHelper(t, bearerToken)
			git.Run(t, work, "push", "origin", "main")
			wantNoErase(t, helper)
		} else {
			replayBearerPush(t, s, git, work, repo)
		}
		wantPushed(t, git, work, repo, "main")
	})
}

// fillPassword asks git's credential helpers for the secret of addr.
func fillPassword(t *testing.T, git *harness.Git, addr string) string {
	t.Helper()
	cmd := exec.Command("git", "credential", "fill")
	cmd.Env, cmd.Stdin = git.Env(), strings.NewReader("protocol=http\nhost="+addr+"\n\n")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if secret, ok := strings.CutPrefix(line, "password="); ok {
			return strings.TrimSpace(secret)
		}
	}
	t.Fatalf("no password from the helper in %q", out)
	return ""
}

// replayBearerPush sends what git 2.46 sends for a large push with a Bearer helper: the bare discovery, the discovery with
// the token, the probe, and the pack in a chunked body after 100-continue, all on one connection.
func replayBearerPush(t *testing.T, s *site, git *harness.Git, work string, repo *harness.Repository) {
	t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * time.Minute))
	r := bufio.NewReader(conn)
	answer := func(what string, want int) *http.Response {
		t.Helper()
		resp, err := http.ReadResponse(r, nil)
		for err == nil && resp.StatusCode == http.StatusContinue && want != http.StatusContinue {
			resp, err = http.ReadResponse(r, nil) // Caddy sends one of its own beside the upstream's
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if resp.StatusCode != want {
			t.Fatalf("%s: %s, want %d", what, resp.Status, want)
		}
		return resp
	}
	drain := func(resp *http.Response) { io.Copy(io.Discard, resp.Body); resp.Body.Close() }
	common := "Host: git.test\r\nUser-Agent: git/2.46.0\r\n"
	bearer := "Authorization: Bearer " + bearerToken + "\r\n"
	discovery := "GET " + path(repo) + "/info/refs?service=git-receive-pack HTTP/1.1\r\n" + common + "Accept: */*\r\nPragma: no-cache\r\n"
	post := "POST " + path(repo) + "/git-receive-pack HTTP/1.1\r\n" + common + bearer +
		"Content-Type: application/x-git-receive-pack-request\r\nAccept: application/x-git-receive-pack-result\r\n"

	io.WriteString(conn, discovery+"\r\n")
	drain(answer("bare discovery", http.StatusUnauthorized))
	io.WriteString(conn, discovery+bearer+"\r\n")
	drain(answer("discovery with the token", http.StatusOK))
	io.WriteString(conn, post+"Content-Length: 4\r\n\r\n0000")
	drain(answer("probe", http.StatusOK))
	io.WriteString(conn, post+"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
	answer("large body announced", http.StatusContinue)
	writeChunked(conn, pushBody(t, git, work, repo))
	drain(answer("large body", http.StatusOK))
}

// pushBody is the body of a push of the work tree's HEAD to main: one command and a pack.
func pushBody(t *testing.T, git *harness.Git, work string, repo *harness.Repository) []byte {
	t.Helper()
	head := git.Head(t, work)
	cmd := exec.Command("git", "pack-objects", "--revs", "--stdout", "-q")
	cmd.Dir, cmd.Env, cmd.Stdin = work, git.Env(), strings.NewReader(head+"\n^"+repo.Head+"\n")
	pack, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	command := harness.PktLine(repo.Head+" "+head+" refs/heads/main\x00report-status") + "0000"
	return append([]byte(command), pack...)
}

func writeChunked(w io.Writer, body []byte) {
	for chunk := range slices.Chunk(body, 64<<10) {
		fmt.Fprintf(w, "%x\r\n%s\r\n", len(chunk), chunk)
	}
	io.WriteString(w, "0\r\n\r\n")
}
