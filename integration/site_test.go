package integration

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-admission/gateway/integration/harness"
)

// site is one gateway with one site in front of an Apache and an LFS store.
type site struct {
	*harness.Gateway
	apache *harness.Apache
	lfs    *harness.LFSStore
	addr   string
	port   int
}

// newSite starts a gateway whose site has the given admission directive.
func newSite(t *testing.T, directive string) *site {
	t.Helper()
	return newSiteBefore(t, harness.StartApache(t), directive)
}

// newSiteBefore starts a gateway in front of that Apache.
func newSiteBefore(t *testing.T, apache *harness.Apache, directive string) *site {
	t.Helper()
	s := &site{apache: apache, lfs: harness.StartLFSStore(t), port: harness.Port(t)}
	s.addr = fmt.Sprintf("127.0.0.1:%d", s.port)
	s.Gateway = harness.StartGateway(t, s.config(directive))
	return s
}

// config is the site's configuration with another admission directive.
func (s *site) config(directive string) harness.Config {
	return harness.Config{Sites: fmt.Sprintf(`http://:%d {
	%s
	@lfs path_regexp /info/lfs/
	%s
	%s
}`, s.port, directive, proxyTo(s.lfs.Addr, "@lfs"), proxyTo(s.apache.Addr, ""))}
}

// proxyTo is a reverse_proxy directive that waits for a connection as long as a busy machine needs: Caddy otherwise gives up
// after 3 seconds with 502.
func proxyTo(addr, matcher string) string {
	return fmt.Sprintf("reverse_proxy %s %s {\n\t\ttransport http {\n\t\t\tdial_timeout 1m\n\t\t}\n\t}", matcher, addr)
}

// url is the address of a repository behind the gateway.
func (s *site) url(repository string) string { return "http://" + s.addr + "/git/" + repository }

// path is the path of a repository behind the gateway.
func path(r *harness.Repository) string { return "/git/" + r.Name }

// workTree clones a repository past the gateway and lets its remote point at url, so that only what the test does next
// goes through the gateway.
func (s *site) workTree(t *testing.T, git *harness.Git, r *harness.Repository, url string) string {
	t.Helper()
	work := git.Clone(t, r.Path)
	git.Run(t, work, "remote", "set-url", "origin", url)
	return work
}

// occupy fills n anonymous places, each from a loopback address of its own, numbered from first. The places are freed by
// release, or at the end of the test.
func (s *site) occupy(t *testing.T, r *harness.Repository, first, n int) (release func()) {
	t.Helper()
	release = r.Hold(t)
	before, held := s.Class(t, "anonymous").InUse, r.Held(t)
	for i := range n {
		harness.Hold(t, harness.Loopback(first+i), s.addr, path(r), r.Head)
	}
	s.WaitInUse(t, "anonymous", before+n)
	r.WaitHeld(t, held+n)
	return release
}

// request is a raw request without a body that asks for the connection to be closed.
func request(method, target string, header ...string) string {
	lines := ""
	for _, h := range header {
		lines += h + "\r\n"
	}
	return method + " " + target + " HTTP/1.1\r\nHost: git.test\r\nUser-Agent: git/2.39.5\r\nConnection: close\r\n" + lines + "\r\n"
}

// refusalHeader marks an answer that the gateway gave itself.
const refusalHeader = "X-Admission"

// wantRefusal fails the test unless the answer is the gateway's own with this status, and has what every refusal has.
func wantRefusal(t *testing.T, resp *http.Response, body string, status int) {
	t.Helper()
	if resp.StatusCode != status || !strings.HasPrefix(resp.Header.Get(refusalHeader), "refused") {
		t.Errorf("got %s, %s %q, want %d from the gateway; body %.200q", resp.Status, refusalHeader, resp.Header.Get(refusalHeader), status, body)
		return
	}
	if after, err := strconv.Atoi(resp.Header.Get("Retry-After")); err != nil || after < 1 || after > 300 {
		t.Errorf("Retry-After is %q, want whole seconds from 1 to 300", resp.Header.Get("Retry-After"))
	}
	if got := resp.Header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control is %q, want no-store", got)
	}
	if strings.TrimSpace(body) == "" || strings.Count(strings.TrimSpace(body), "\n") != 0 {
		t.Errorf("body is %q, want one line", body)
	}
}
