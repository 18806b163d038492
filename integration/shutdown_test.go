package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/flood"
	"github.com/caddy-admission/gateway/integration/harness"
)

// TestShutdown asks the gateway to end while one request hangs at the server, one client reads its clone by and by and three
// requests wait. Those that wait are refused at once, long before the grace period is over; the other two go on for that time
// and are cut; then the process ends by itself.
func TestShutdown(t *testing.T) {
	const grace = 10 * time.Second
	s := newCrowdServer(t, 32<<20, flood.BackendConfig{Workers: 16})
	latch := harness.StartLatch(t, s.backend.URL[len("http://"):])
	port := harness.Port(t)
	s.addr = fmt.Sprintf("127.0.0.1:%d", port)
	s.Gateway = harness.StartGateway(t, harness.Config{
		Global: fmt.Sprintf("grace_period %v", grace),
		Sites:  fmt.Sprintf("http://:%d {\nadmission {\n total 10\n class anonymous {\n max 2\n wait 8 5m\n }\n}\nreverse_proxy %s\n}", port, latch.Addr),
	})
	hung := harness.Send(t, harness.Loopback(1), s.addr, harness.FetchRequest("/pub.git", s.tip, harness.LatchHeader+": 1"))
	latch.WaitKept(t, 1)
	reader := harness.Hold(t, harness.Loopback(2), s.addr, "/pub.git", s.tip)
	s.WaitInUse(t, "anonymous", 2)
	var waiting []*harness.Holder
	for i := range 3 {
		waiting = append(waiting, harness.Hold(t, harness.Loopback(10+i), s.addr, "/pub.git", s.tip))
	}
	harness.Eventually(t, time.Minute, "three requests that wait", func() error {
		if n := s.Class(t, "anonymous").Waiting; n != 3 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})

	start := time.Now()
	s.Terminate()
	for i, h := range waiting {
		resp, body, err := h.Answer(time.Minute)
		if err != nil {
			t.Fatalf("waiter %d: %v", i, err)
		}
		if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(resp.Header.Get(refusalHeader), "reason=shutdown") {
			t.Errorf("waiter %d: %s %q %.100q, want 503 for the shutdown", i, resp.Status, resp.Header.Get(refusalHeader), body)
		}
	}
	t.Logf("three waiters were answered after %v", time.Since(start).Round(time.Millisecond))
	if ended, err := s.Ended(); ended {
		t.Fatalf("the process ended (%v) before its waiters were answered", err)
	}
	s.WaitEnd(t, grace+time.Minute)
	took := time.Since(start)
	t.Logf("the process ended after %v", took.Round(time.Millisecond))
	if took < grace-time.Second {
		t.Errorf("the requests that ran had %v of a grace period of %v", took, grace)
	}
	for name, h := range map[string]*harness.Holder{"the hanging request": hung, "the reader": reader} {
		if _, body, err := h.Answer(time.Minute); err == nil && len(body) > 30<<20 {
			t.Errorf("%s was answered whole", name)
		}
	}
}
