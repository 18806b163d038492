package integration

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// TestTenThousandAborts ends 10,000 requests at random moments, most of them as a client that leaves. Afterwards no permit is
// in use, and the gateway has the memory and the goroutines it had before.
func TestTenThousandAborts(t *testing.T) {
	const requests, atOnce = 10_000, 32
	s := newUnreliableSite(t)
	var seed [32]byte
	rand.Read(seed[:])
	t.Logf("seed %x", seed)

	s.abort(t, mathrand.New(mathrand.NewChaCha8(seed)), 300) // what is started or kept once
	s.settle(t)
	goroutines, _ := s.gateway.Goroutines(t)
	heap := s.gateway.Heap(t)

	start := time.Now()
	var running sync.WaitGroup
	for w := range atOnce {
		seed[0]++
		seed[1] = byte(w)
		random := mathrand.New(mathrand.NewChaCha8(seed))
		running.Go(func() { s.abort(t, random, requests/atOnce+1) })
	}
	running.Wait()
	t.Logf("%d requests in %v", requests, time.Since(start).Round(time.Second))
	s.settle(t)

	harness.Eventually(t, time.Minute, "as many goroutines and as much memory as before", func() error {
		now, stacks := s.gateway.Goroutines(t)
		used := s.gateway.Heap(t)
		if now > goroutines {
			return fmt.Errorf("%d goroutines, %d before:\n%s", now, goroutines, stacks)
		}
		if used > heap+8<<20 {
			return fmt.Errorf("%d bytes reachable, %d before", used, heap)
		}
		t.Logf("goroutines %d, before %d; bytes reachable %d, before %d", now, goroutines, used, heap)
		return nil
	})
}

// abort makes n requests over HTTP/1.1, each with a random end. Few hang, because each of those takes the whole deadline.
func (s *unreliableSite) abort(t *testing.T, random *mathrand.Rand, n int) {
	for range n {
		a := newAttempt(random)
		if a.header.Get(harness.DoHeader) == harness.DoHang && random.IntN(20) > 0 {
			a.header.Set(harness.DoHeader, harness.DoStream)
		}
		s.overHTTP1(t, a, random)
	}
}
