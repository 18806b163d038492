package admission

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fetchSteps is what a fetch from an open repository asks of class anonymous, one request after the other, and for how long:
// the list of services, the list of refs, four rounds of negotiation, the pack.
var fetchSteps = []time.Duration{50 * time.Millisecond, 50 * time.Millisecond, 50 * time.Millisecond, 50 * time.Millisecond,
	50 * time.Millisecond, 50 * time.Millisecond, 600 * time.Millisecond}

// roundTrip is between an answer and the client's next request.
const roundTrip = 50 * time.Millisecond

// fetchesInAMinute lets fetches arrive at overload times what eight places can serve, each from a network of its own, and counts
// those that got all they came for. A fetch one of whose requests is refused is lost with what was spent on it: git repeats
// none. The clock is the bubble's.
func fetchesInAMinute(t *testing.T, overload float64, continuations bool) (served int) {
	synctest.Test(t, func(t *testing.T) {
		const places, minute = 8, time.Minute
		c := NewController(compile(t, anonymousOnly(ClassConfig{Max: ptr(places), Wait: &WaitConfig{32, Duration(10 * time.Second)}})))
		var work time.Duration
		for _, step := range fetchSteps {
			work += step
		}
		rate := overload * places / work.Seconds()
		random := rand.New(rand.NewPCG(1, 2))
		start := time.Now()
		var mu sync.Mutex
		var fetches sync.WaitGroup
		for client := Key(1); time.Since(start) < minute; client++ {
			fetches.Go(func() {
				r := from(Anonymous, client<<8)
				for i, step := range fetchSteps {
					if i > 0 {
						time.Sleep(roundTrip)
					}
					r.Now, r.Continuation = time.Now(), continuations && i > 0
					p, refusal := c.Admit(t.Context(), r)
					if refusal != nil {
						return
					}
					time.Sleep(step)
					p.End(OutcomeCompleted)
				}
				if time.Since(start) < minute {
					mu.Lock()
					served++
					mu.Unlock()
				}
			})
			time.Sleep(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
		}
		fetches.Wait()
		mustBeIdle(t, c)
	})
	return served
}

// TestGoodputUnderOverload: what was begun is finished, so that a crowd far above what the places can serve gets nearly as
// much out of them as one that just fits. Without continuations most of the work is lost on fetches that are refused half-way.
func TestGoodputUnderOverload(t *testing.T) {
	got := map[bool]map[float64]int{true: {}, false: {}}
	for _, overload := range []float64{1, 2, 8} {
		for _, continuations := range []bool{true, false} {
			got[continuations][overload] = fetchesInAMinute(t, overload, continuations)
		}
		t.Logf("overload %v: %d fetches a minute with continuations, %d without", overload, got[true][overload], got[false][overload])
	}
	if got[true][8] < got[true][1]*9/10 {
		t.Errorf("%d fetches a minute at eightfold overload, %d at once what fits; want at least nine tenths", got[true][8], got[true][1])
	}
	if 2*got[true][8] < 3*got[false][8] {
		t.Errorf("%d fetches a minute at eightfold overload with continuations, %d without; want at least half as many again", got[true][8], got[false][8])
	}
}

// TestShareOfAGreedyAddress lets one address with 64 clones and 20 with one each compete for eight places for a minute of the
// bubble's clock. Jain's index of what each got (1: all the same) is near 1, because an address is one caller however much it
// asks for.
func TestShareOfAGreedyAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewController(compile(t, anonymousOnly(ClassConfig{Max: ptr(8), CallerMax: ptr(4), Wait: &WaitConfig{128, Duration(time.Minute)}})))
		const callers, minute = 21, time.Minute
		served := make([]float64, callers)
		start := time.Now()
		var mu sync.Mutex
		var clients sync.WaitGroup
		clone := func(caller int) {
			for time.Since(start) < minute {
				p, refusal := c.Admit(t.Context(), from(Anonymous, Key(caller+1)<<8))
				if refusal != nil {
					time.Sleep(refusal.RetryAfter)
					continue
				}
				time.Sleep(900 * time.Millisecond)
				p.End(OutcomeCompleted)
				if time.Since(start) < minute {
					mu.Lock()
					served[caller]++
					mu.Unlock()
				}
			}
		}
		for range 64 {
			clients.Go(func() { clone(0) })
		}
		for caller := 1; caller < callers; caller++ {
			clients.Go(func() { clone(caller) })
		}
		clients.Wait()
		index := jain(served)
		t.Logf("Jain's index %.3f: the greedy address got %v clones, the others %v", index, served[0], served[1:])
		if index < 0.95 {
			t.Errorf("Jain's index is %.3f, want at least 0.95", index)
		}
	})
}

// jain is Jain's fairness index: (Σx)² / (n·Σx²).
func jain(x []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range x {
		sum += v
		squares += v * v
	}
	return math.Pow(sum, 2) / (float64(len(x)) * squares)
}
