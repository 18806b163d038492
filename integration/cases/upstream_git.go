package cases

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// gitServer runs git http-backend for the bare repositories below root, the
// way a web server would. Pushes need a credential; so do reads of
// repositories with "priv" in their name.
type gitServer struct {
	root string
}

// newGitServer makes the repositories that the paths name.
func newGitServer(ctx context.Context, root string, repositories []string) (*gitServer, error) {
	for _, name := range repositories {
		dir := filepath.Join(root, filepath.FromSlash(name))
		for _, args := range [][]string{
			{"init", "--quiet", "--bare", "--initial-branch=main", dir},
			{"-C", dir, "config", "http.receivepack", "true"},
			{"-C", dir, "config", "uploadpack.allowFilter", "true"},
		} {
			if out, err := gitCommand(ctx, "", args...).CombinedOutput(); err != nil {
				return nil, fmt.Errorf("git %s: %w: %s", args[0], err, out)
			}
		}
		if err := seed(ctx, dir); err != nil {
			return nil, err
		}
	}
	return &gitServer{root: root}, nil
}

// seed gives a bare repository one commit.
func seed(ctx context.Context, dir string) error {
	tree, err := gitCommand(ctx, "", "-C", dir, "write-tree").Output()
	if err != nil {
		return fmt.Errorf("git write-tree: %w", err)
	}
	commit, err := gitCommand(ctx, "", "-C", dir, "commit-tree", "-m", "start", strings.TrimSpace(string(tree))).Output()
	if err != nil {
		return fmt.Errorf("git commit-tree: %w", err)
	}
	return gitCommand(ctx, "", "-C", dir, "update-ref", "refs/heads/main", strings.TrimSpace(string(commit))).Run()
}

// gitCommand runs git without the configuration of the machine.
func gitCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0",
		"GIT_ASKPASS=true", "LC_ALL=C", "GIT_AUTHOR_NAME=Case", "GIT_AUTHOR_EMAIL=case@example.org",
		"GIT_COMMITTER_NAME=Case", "GIT_COMMITTER_EMAIL=case@example.org", "HTTP_PROXY=", "http_proxy=", "NO_PROXY=*")
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// serveGit answers with real git.
func (u *upstream) serveGit(p *play) bool {
	private := strings.Contains(p.r.URL.Path, "priv")
	if (private || needsCredential(p.r)) && !u.ledger.accepts(credentialOf(p.r.Header.Get)) {
		io.Copy(io.Discard, io.LimitReader(p.r.Body, 64<<10))
		p.content(http.StatusUnauthorized)
		return true
	}
	if u.git == nil {
		p.content(http.StatusInternalServerError)
		return false
	}
	return u.git.serve(p)
}

// serve runs one http-backend. Bodies of unknown length are passed on until
// they end, which git supports and the standard library's CGI does not.
func (g *gitServer) serve(p *play) bool {
	ctx, cancel := context.WithCancel(p.r.Context())
	defer cancel()
	cmd := gitCommand(ctx, g.root, "http-backend")
	cmd.Env = append(cmd.Env, g.environment(p.r)...)
	cmd.Stdin = p.r.Body
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		p.content(http.StatusInternalServerError)
		return false
	}
	copied := g.copyAnswer(p, bufio.NewReader(out))
	p.answered = true
	if copied != nil {
		cancel()
	}
	return errors.Join(copied, cmd.Wait()) == nil
}

func (g *gitServer) environment(r *http.Request) []string {
	env := []string{
		"GIT_PROJECT_ROOT=" + g.root, "GIT_HTTP_EXPORT_ALL=1", "REQUEST_METHOD=" + r.Method,
		"PATH_INFO=" + r.URL.Path, "QUERY_STRING=" + r.URL.RawQuery, "CONTENT_TYPE=" + r.Header.Get("Content-Type"),
		"HTTP_CONTENT_ENCODING=" + r.Header.Get("Content-Encoding"), "GIT_PROTOCOL=" + r.Header.Get("Git-Protocol"),
		"REMOTE_ADDR=127.0.0.1", "SERVER_PROTOCOL=HTTP/1.1", "GATEWAY_INTERFACE=CGI/1.1",
	}
	if r.ContentLength > 0 {
		env = append(env, "CONTENT_LENGTH="+strconv.FormatInt(r.ContentLength, 10))
	}
	if user, _, ok := r.BasicAuth(); ok {
		env = append(env, "REMOTE_USER="+user)
	}
	return env
}

func (g *gitServer) copyAnswer(p *play, out *bufio.Reader) error {
	head, err := textproto.NewReader(out).ReadMIMEHeader()
	if err != nil {
		p.content(http.StatusInternalServerError)
		return err
	}
	status := http.StatusOK
	if line := head.Get("Status"); line != "" {
		if status, err = strconv.Atoi(strings.Fields(line)[0]); err != nil {
			return err
		}
		head.Del("Status")
	}
	for name, values := range head {
		p.w.Header()[name] = values
	}
	p.start(status, "")
	buf := make([]byte, 32<<10)
	for {
		n, err := out.Read(buf)
		if n > 0 {
			if _, werr := p.w.Write(buf[:n]); werr != nil {
				return werr
			}
			p.flow.Flush()
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
