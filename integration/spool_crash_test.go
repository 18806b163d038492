package integration

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// crashes is how often a gateway is killed, over all gateways of the test.
const crashes = 200

// TestCrash kills the gateway at random moments under load, 200 times, and starts it again. Every delivery that was
// acknowledged reaches the receiver, those of a repository in their order, and nothing reaches it that was not sent.
func TestCrash(t *testing.T) {
	for _, mode := range []string{"always", "overflow", "always", "overflow"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			crash(t, mode, crashes/4)
		})
	}
}

// sent is what the senders of one gateway know.
type sent struct {
	mu    sync.Mutex
	taken map[string][]int // acknowledged numbers by repository
	tried map[string]int   // numbers used by repository
}

func crash(t *testing.T, mode string, times int) {
	l := startLedger(t)
	l.behave(func(a arrival) int { time.Sleep(time.Duration(a.n%7) * time.Millisecond); return http.StatusOK })
	k := newKeeper(t, mode, l.addr, "fresh_wait 5ms", "max_bytes 8MiB")
	config := harness.Config{Sites: k.sites(k.dir, "")}
	k.Gateway = harness.StartGateway(t, config)
	book := &sent{taken: map[string][]int{}, tried: map[string]int{}}
	started := time.Now()
	for i := range times {
		stop := make(chan struct{})
		var senders sync.WaitGroup
		for s := range 3 {
			senders.Go(func() { book.load(k, s, stop) })
		}
		time.Sleep(time.Duration(rand.IntN(120)) * time.Millisecond) // the moment is what is tested
		k.Kill()
		close(stop)
		senders.Wait()
		k.sender.CloseIdleConnections()
		k.Gateway.Start(t, config)
		if t.Failed() {
			t.Fatalf("after crash %d", i+1)
		}
	}
	k.waitEmpty(t, 2*time.Minute)
	all := l.all()
	taken := book.check(t, all)
	t.Logf("%d crashes in %.0f s: %d acknowledged, %d attempts", times, time.Since(started).Seconds(), taken, len(all))
	if s := k.spool(t); s.Dead > 0 || s.Damaged > 0 {
		t.Errorf("%d dead, %d damaged", s.Dead, s.Damaged)
	}
	if taken < times {
		t.Errorf("%d acknowledged in %d rounds: there was no load", taken, times)
	}
}

// load sends deliveries of two repositories, one after the other, until stop.
func (b *sent) load(k *keeper, sender int, stop <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		repository := fmt.Sprintf("team/app%d-%d", sender, i%2)
		b.mu.Lock()
		n := b.tried[repository]
		b.tried[repository]++
		b.mu.Unlock()
		if status := k.send(repository, n); status/100 == 2 {
			b.mu.Lock()
			b.taken[repository] = append(b.taken[repository], n)
			b.mu.Unlock()
		}
	}
}

// check compares what arrived with what was sent.
func (b *sent) check(t *testing.T, all []arrival) (taken int) {
	t.Helper()
	for _, a := range all {
		if a.n >= b.tried[a.repository] || a.id != keptID(a.repository, a.n) || a.sum != sha256.Sum256([]byte(keptBody(a.repository, a.n))) {
			t.Errorf("nobody sent %+v", a)
		}
	}
	for repository, numbers := range b.taken {
		taken += len(numbers)
		at := map[int]int{} // place of the first arrival
		for i, a := range first(all, repository) {
			at[a.n] = i + 1
		}
		last := 0
		for _, n := range numbers {
			switch {
			case at[n] == 0:
				t.Errorf("delivery %d of %s was acknowledged and never arrived", n, repository)
			case at[n] < last:
				t.Errorf("delivery %d of %s overtook an older one", n, repository)
			}
			last = max(last, at[n])
		}
	}
	return taken
}
