package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// gauge passes requests on to an upstream and counts those below a path that are inside at once.
type gauge struct {
	addr      string
	now, peak atomic.Int64
	served    atomic.Int64
}

func startGauge(t *testing.T, upstream, below string) *gauge {
	t.Helper()
	g := &gauge{}
	proxy := harness.NewForwarder(upstream)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, below) {
			n := g.now.Add(1)
			defer g.now.Add(-1)
			for p := g.peak.Load(); n > p && !g.peak.CompareAndSwap(p, n); p = g.peak.Load() {
			}
			g.served.Add(1)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	g.addr = s.Listener.Addr().String()
	return g
}

// TestCrawlLeavesPeopleAlone: 2,000 addresses ask cgit for two expensive pages each and come back while a developer pushes and
// a CI job fetches, as fast as the gateway answers. Every push and fetch passes, and cgit never renders more pages at once than class web
// has places.
func TestCrawlLeavesPeopleAlone(t *testing.T) {
	const crawlers, pages, webMax = 2000, 2, 6
	apache := harness.StartCgit(t)
	public := apache.Repository(t, "public.git")
	private := apache.Repository(t, "private.git")
	up := startGauge(t, apache.Addr, "/cgit/")
	port := harness.Port(t)
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	g := harness.StartGateway(t, harness.Config{Sites: fmt.Sprintf(`http://:%d {
	admission {
		forge cgit
		class web {
			max %d
		}
	}
	%s
}`, port, webMax, proxyTo(up.addr, ""))})

	push, fetch := developer(t, addr, public.Name), job(t, addr, private.Name)
	var quiet []time.Duration
	for range 10 {
		quiet = append(quiet, push(), fetch())
	}

	var next, shown, refused atomic.Int64
	var enough atomic.Bool // the people have done their work
	var crowd sync.WaitGroup
	for range 128 {
		crowd.Go(func() {
			for n := next.Add(1) - 1; n < crawlers*pages || !enough.Load(); n = next.Add(1) - 1 {
				page := []string{"/commit/", "/log/", "/tree/file1.txt", "/snapshot/public-main.tar.gz"}[n%4]
				switch status, err := crawl(harness.Loopback(int(n)%crawlers), addr, "/cgit/public.git"+page); {
				case err != nil:
					t.Errorf("crawler %d: %v", n, err)
					return
				case status == http.StatusOK:
					shown.Add(1)
				case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests:
					refused.Add(1)
				default:
					t.Errorf("crawler %d got %d", n, status)
				}
			}
		})
	}
	var loaded []time.Duration
	for range 10 {
		loaded = append(loaded, push(), fetch())
	}
	enough.Store(true)
	crowd.Wait()
	t.Logf("%d pages shown, %d refused; at most %d at once; push and fetch: quiet median %v, p95 %v; during the crawl median %v, p95 %v",
		shown.Load(), refused.Load(), up.peak.Load(), quantile(quiet, 0.5), quantile(quiet, 0.95), quantile(loaded, 0.5), quantile(loaded, 0.95))
	if up.peak.Load() > webMax {
		t.Errorf("cgit rendered %d pages at once, want at most %d", up.peak.Load(), webMax)
	}
	if shown.Load() == 0 || up.served.Load() != shown.Load() {
		t.Errorf("%d pages shown, cgit rendered %d", shown.Load(), up.served.Load())
	}
	for _, class := range []string{"push", "read", "discovery", "candidate"} {
		if got := g.Class(t, class); got.Refused() != 0 {
			t.Errorf("class %s refused %v", class, got.Decisions)
		}
	}
}

// developer pushes a commit with a credential helper, as people do.
func developer(t *testing.T, addr, repository string) func() time.Duration {
	git := harness.NewGit(t)
	git.UseHelper(t, harness.Alice, harness.AliceSecret)
	work := git.Clone(t, "http://"+addr+"/git/"+repository)
	return func() time.Duration {
		git.Commit(t, work, "beside a crawl")
		start := time.Now()
		git.Run(t, work, "push", "-q", "origin", "main")
		return time.Since(start)
	}
}

// job fetches a private repository with the header that CI sends first.
func job(t *testing.T, addr, repository string) func() time.Duration {
	git := harness.NewGit(t)
	git.Config(t, "http.extraHeader", basicHeader(harness.Bob, harness.BobSecret))
	return func() time.Duration {
		start := time.Now()
		git.Clone(t, "http://"+addr+"/git/"+repository)
		return time.Since(start)
	}
}

func quantile(all []time.Duration, q float64) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[min(int(float64(len(all))*q), len(all)-1)]
}

// crawl asks for a page from an address of its own and returns the status.
func crawl(source, addr, path string) (int, error) {
	d := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: git.test\r\nUser-Agent: Mozilla/5.0\r\nConnection: close\r\n\r\n"); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
