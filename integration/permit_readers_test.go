package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/flood"
	"github.com/caddy-admission/gateway/integration/harness"
)

// TestStalledReadersAreEnded has a client that clones 100 MB at 64 KiB a second and, after it, 60 that start the same clone and
// read nothing. The 60 are gone after the stall limit, at the gateway and at the server; the slow one, which has been there
// for longer, goes on, because nobody waits. The kernel lets the gateway write on only when a third of up to 4 MB is taken, which
// is 20 s at that rate: a shorter limit would take it for stalled.
func TestStalledReadersAreEnded(t *testing.T) {
	const stalled = 60
	s := newCrowdSite(t, "admission {\n class anonymous {\n stall 30s\n }\n}", 100<<20, flood.BackendConfig{Workers: 128})
	slow := s.start(t, flood.Flood{Clients: 1, Most: 1, Rate: 64 << 10, Driver: flood.Fetch("/pub.git", s.tip)})
	s.WaitInUse(t, "anonymous", 1)
	for i := range stalled {
		harness.Hold(t, harness.Loopback(i), s.addr, "/pub.git", s.tip)
	}
	harness.Eventually(t, 3*time.Minute, "60 readers ended as stalled and one left", func() error {
		c := s.Class(t, "anonymous")
		if c.Outcomes["stalled"] != stalled || c.InUse != 1 || c.Abandoned != 0 {
			return fmt.Errorf("outcomes %v, %d in use, %d abandoned", c.Outcomes, c.InUse, c.Abandoned)
		}
		return nil
	})
	harness.Eventually(t, time.Minute, "one request left at the server", func() error {
		if n := s.backend.Busy(); n != 1 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	if n := slow.Answers(); n != 0 {
		t.Errorf("the slow reader's clone is over: %v", slow.Statuses)
	}
	if c := s.Class(t, "anonymous"); c.Outcomes["displaced"] != 0 || c.InUse != 1 {
		t.Errorf("%d in use, outcomes %v; want the slow reader left alone", c.InUse, c.Outcomes)
	}
}
