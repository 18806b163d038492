package spool

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

var randomSeeds = flag.Uint64("randomlives", 12, "seeds of TestRandomLives")

// TestRandomLives sends deliveries of several repositories while the receiver
// answers, fails, hangs and goes away at random, the configuration comes and
// goes, and the process ends cleanly or loses its power: whatever was
// acknowledged arrives, and a repository's deliveries arrive for the first
// time in the order they were acknowledged in.
func TestRandomLives(t *testing.T) {
	for seed := range *randomSeeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomLives(t, seed) })
	}
}

func randomLives(t *testing.T, seed uint64) {
	c := HookConfig{Tries: 1000, TryFor: Duration(1_000 * time.Hour)}
	if seed%3 == 2 {
		c.Keep = KeepAlways
	}
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, 11))
	roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return r.IntN(n) }
	moody := func(ctx context.Context, repo, body string) int {
		switch roll(10) {
		case 0:
			return 503
		case 1:
			return 0
		case 2:
			return hang(ctx, repo, body)
		case 3:
			time.Sleep(time.Duration(roll(90)) * time.Second)
			if ctx.Err() != nil {
				return 599
			}
			return 200
		}
		return 200
	}
	acked := map[string][]string{}
	bubble(t, c, moody, func(r *rig) {
		for life := range 4 {
			var wg sync.WaitGroup
			for i := range 5 {
				repo := fmt.Sprintf("repo%d", i)
				wg.Go(func() {
					for n := range 15 {
						d := small(repo, life*1000+n)
						ctx, cancel := context.WithTimeout(r.Context(), 4*time.Second)
						a, err := r.s.Accept(ctx, hookName, d)
						cancel()
						if err == nil && a.Status/100 == 2 {
							mu.Lock()
							acked[repo] = append(acked[repo], d.ID)
							mu.Unlock()
						}
						time.Sleep(time.Duration(roll(3000)) * time.Millisecond)
					}
				})
			}
			time.Sleep(time.Duration(roll(20)) * time.Second)
			if err := r.s.SetHooks(nil); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Duration(roll(5)) * time.Second)
			if err := r.s.SetHooks([]HookConfig{r.config}); err != nil {
				t.Error(err)
			}
			wg.Wait()
			if roll(2) == 0 {
				r.restart()
			} else {
				_ = r.s.Close()
				r.open()
			}
		}
		r.far.set(always(200))
		r.pass(2 * time.Hour)
		if n := r.s.Snapshot(); n.Due != 0 || n.Dead != 0 || n.Hooks[hookName].Running != 0 {
			t.Errorf("left: %+v", n)
		}
		checkArrivals(t, acked, r.far.bodies())
	})
}

// checkArrivals compares first arrivals with what was acknowledged.
func checkArrivals(t *testing.T, acked map[string][]string, got []string) {
	t.Helper()
	first := map[string]int{}
	for i, body := range got {
		if _, ok := first[body]; !ok {
			first[body] = i
		}
	}
	total := 0
	for _, ids := range acked {
		total += len(ids)
		before := -1
		for _, id := range ids {
			at, ok := first[id]
			if !ok {
				t.Errorf("%s was acknowledged and never arrived", id)
				continue
			}
			if at < before {
				t.Errorf("%s arrived before one that is older: %s", id, strings.Join(ids, " "))
			}
			before = max(before, at)
		}
	}
	if total < 100 {
		t.Errorf("only %d acknowledged: the run proves little", total)
	}
}
