package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/flood"
	"github.com/caddy-admission/gateway/integration/harness"
)

// TestGreedyAddressBesidePoliteOnes has one address with 64 clones at once, which is as many as class anonymous has places,
// and 20 addresses with one each. The greedy one holds the four places of its cap; every polite clone has a place at once.
func TestGreedyAddressBesidePoliteOnes(t *testing.T) {
	s := newCrowdSite(t, "admission {\n wait off\n}", 16<<20, flood.BackendConfig{Workers: 128})
	greedy := s.start(t, flood.Flood{Clients: 64, Source: flood.Only(flood.Source(people)), Rate: 128 << 10, Pause: 100 * time.Millisecond, Driver: flood.Fetch("/pub.git", s.tip)})
	greedy.waitAnswers(t, 60) // all but the four that hold a place were refused
	s.WaitInUse(t, "anonymous", 4)

	polite := flood.Flood{Target: s.addr, Clients: 20, Most: 20, Driver: flood.Fetch("/pub.git", s.tip)}.Run(t.Context())
	if polite.Served() != 20 {
		t.Errorf("%d of 20 polite clones were served, %d refused", polite.Served(), polite.Refused())
	}
	if n := s.Class(t, "anonymous").Decisions["refused_caller_cap"]; n < 60 {
		t.Errorf("the greedy address was over its cap %d times, want at least 60", n)
	}
}

// TestFullQueueHasRoomForOthers fills the queue of class anonymous from 200 addresses of one network, each below its own cap.
// Clones from elsewhere still find a place in it, take turns with the network's as a whole, and all pass.
func TestFullQueueHasRoomForOthers(t *testing.T) {
	s := newCrowdSite(t, "admission {\n total 16\n class anonymous {\n wait 64 60s\n}\n}", 64<<10, flood.BackendConfig{Workers: 16, Think: 300 * time.Millisecond})
	network := s.start(t, flood.Flood{Clients: 200, Source: flood.Neighbour, Pause: 500 * time.Millisecond, Driver: flood.Fetch("/pub.git", s.tip)})
	harness.Eventually(t, time.Minute, "a full queue", func() error {
		if c := s.Class(t, "anonymous"); c.Refused() == 0 {
			return fmt.Errorf("%d wait, none was refused", c.Waiting)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	others := flood.Flood{Target: s.addr, Clients: 10, Most: 40, Driver: flood.Fetch("/pub.git", s.tip)}.Run(ctx)
	refused := network.Refused()
	network.stop()
	t.Logf("others' clones: median %v, worst %v; the network: %d served, %d refused", flood.Quantile(others.Times, 0.5).Round(time.Millisecond),
		flood.Quantile(others.Times, 1).Round(time.Millisecond), network.Served(), network.Refused())
	if others.Served() != 40 {
		t.Errorf("%d of 40 clones from elsewhere were served, %d refused", others.Served(), others.Refused())
	}
	if refused < 20 {
		t.Errorf("only %d clones of the network were refused: the queue was not full", refused)
	}
}
