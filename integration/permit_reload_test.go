package integration

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/flood"
	"github.com/caddy-admission/gateway/integration/harness"
)

// TestReloadStorm loads 50 configurations with other limits while a crowd clones. No admitted request is lost, the server
// never works on more than the largest limit allows, and every counter goes on: in the end exactly those requests were counted
// that got an answer.
func TestReloadStorm(t *testing.T) {
	const reloads, clients, most = 50, 24, 8
	directive := func(max int) string {
		return fmt.Sprintf("admission {\n total %d\n class anonymous {\n max %d\n wait 16 1s\n }\n}", 8+max, max)
	}
	s := newCrowdServer(t, 64<<10, flood.BackendConfig{Workers: 32, Think: 20 * time.Millisecond})
	upstream := s.backend.URL[len("http://"):]
	s.front(t, directive(most), upstream)

	var served, refused atomic.Int64
	stop := make(chan struct{})
	var cloning sync.WaitGroup
	for i := range clients {
		cloning.Go(func() {
			for run := 0; ; run++ {
				select {
				case <-stop:
					return
				default:
				}
				switch a := s.fetchOnce(t, i); {
				case a.Status == http.StatusOK && a.Bytes > 64<<10:
					served.Add(1)
				case a.Status == http.StatusServiceUnavailable && a.Retry != "":
					refused.Add(1)
				default:
					t.Errorf("client %d, run %d: %d with %d bytes, want a whole clone or a refusal", i, run, a.Status, a.Bytes)
					return
				}
			}
		})
	}
	var last harness.Class
	for i := range reloads {
		if err := s.Reload(s.config(directive(2+i*5%(most-1)), upstream)); err != nil {
			t.Fatalf("reload %d: %v", i, err)
		}
		now := s.Class(t, "anonymous")
		if now.Permits() < last.Permits() || now.Refused() < last.Refused() {
			t.Errorf("reload %d: decisions went from %v to %v", i, last.Decisions, now.Decisions)
		}
		last = now
		atLeast := served.Load() + 4 // the crowd goes on between two reloads
		harness.Eventually(t, time.Minute, "clones between two reloads", func() error {
			if n := served.Load(); n < atLeast && !t.Failed() {
				return fmt.Errorf("%d of %d", n, atLeast)
			}
			return nil
		})
	}
	close(stop)
	cloning.Wait()
	s.WaitIdle(t, time.Minute)

	c := s.Class(t, "anonymous")
	if got := int64(c.Permits()); got != served.Load() {
		t.Errorf("%d permits were counted, %d clones were served", got, served.Load())
	}
	if got := int64(c.Refused()); got != refused.Load() {
		t.Errorf("%d refusals were counted, %d were received", got, refused.Load())
	}
	if peak := s.backend.Peak(); peak > most || peak < 2 {
		t.Errorf("the server worked on %d requests at once, want 2 to %d", peak, most)
	}
	t.Logf("%d clones served, %d refused, %d at once at most", served.Load(), refused.Load(), s.backend.Peak())
}

// fetchOnce fetches the repository from the i-th address over a connection of its own. Caddy opens a new listening socket for
// each configuration and closes the old one, with the connections in its queue that nobody has accepted: a client that sees its
// connection closed without any answer connects once more, and here, where the next configuration comes a moment later, up to
// three times. That none of those was admitted is what the counters show in the end.
func (s *crowdSite) fetchOnce(t *testing.T, i int) (a flood.Answer) {
	for range 4 {
		c := &flood.Client{Source: flood.Source(i), Addr: s.addr}
		a = flood.Fetch("/pub.git", s.tip)(t.Context(), c)[0]
		c.Close()
		if a.Status != 0 {
			break
		}
		flood.Pause(t.Context(), 50*time.Millisecond)
	}
	return a
}
