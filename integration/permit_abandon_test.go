package integration

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// TestAbandonedClonesAreCounted lets clients start clones of a badly packed repository and hang up at random moments. Apache
// does not stop git for that; at no moment do more git processes work than the gateway counts permits, in use or abandoned.
// No more than half of the class is abandoned at once, so none is cut.
func TestAbandonedClonesAreCounted(t *testing.T) {
	const clients, rounds = 4, 3
	s := newSite(t, `admission {
		total 16
		class anonymous {
			max 8
		}
	}`)
	repo := s.apache.Repository(t, "public-loose.git")
	repo.Loosen(t, 1500)

	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { watchPacking(t, s, repo, stop) })
	for range rounds {
		var leaving sync.WaitGroup
		for i := range clients {
			h := harness.Hold(t, harness.Loopback(i), s.addr, path(repo), repo.Head)
			stay := time.Duration(rand.IntN(800)) * time.Millisecond
			leaving.Go(func() {
				time.Sleep(stay) // the client's own patience, not a wait for something
				h.Close()
			})
		}
		leaving.Wait()
		s.WaitIdle(t, time.Minute)
	}
	close(stop)
	watching.Wait()
	harness.Eventually(t, time.Minute, "no git process left", func() error {
		if n := repo.Packing(t); n > 0 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	c := s.Class(t, "anonymous")
	if c.Outcomes["abandoned"] < rounds {
		t.Errorf("outcomes %v, want at least %d abandoned: nobody hung up while git worked", c.Outcomes, rounds)
	}
	t.Logf("outcomes: %v", c.Outcomes)
}

// watchPacking compares the git processes with the permits until stop. Only moments count in which no permit began or ended
// between two looks at the gateway's state.
func watchPacking(t *testing.T, s *site, repo *harness.Repository, stop chan struct{}) {
	judged, most := 0, 0
	for {
		select {
		case <-stop:
			if judged < 20 || most < 2 {
				t.Errorf("%d moments compared, %d git processes at most; the test is about more", judged, most)
			}
			t.Logf("%d moments compared, %d git processes at most", judged, most)
			return
		default:
		}
		before := s.Class(t, "anonymous")
		packing := repo.Packing(t)
		after := s.Class(t, "anonymous")
		if before.Permits() != after.Permits() || before.InUse+before.Abandoned != after.InUse+after.Abandoned {
			continue
		}
		judged, most = judged+1, max(most, packing)
		if held := after.InUse + after.Abandoned; packing > held {
			t.Errorf("%d git processes work, the gateway counts %d in use and %d abandoned", packing, after.InUse, after.Abandoned)
			return
		}
	}
}
