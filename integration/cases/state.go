package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
)

// stateClass is what the runner reads of one class in the gateway's state.
type stateClass struct {
	Reserve   int              `json:"reserve"`
	Max       int              `json:"max"`
	InUse     int              `json:"in_use"`
	Waiting   int              `json:"waiting"`
	Abandoned int              `json:"abandoned"`
	Decisions map[string]int64 `json:"decisions"`
}

// snapshot is the gateway's state, its metrics and its memory at one moment.
type snapshot struct {
	at      time.Time
	classes map[string]stateClass
	raw     any    // the whole state, decoded
	text    []byte // the whole state as it came
	metrics []byte // nil unless asked for
	rss     int64
	heap    int64 // what the process says it uses, 0 when not asked
	disk    int64
	err     error

	// Of accepted deliveries against arrived and kept ones, at the moment of
	// this snapshot: deliveries go on afterwards.
	balance    float64
	balanceErr error
}

const statePath = "/admission/state"

// take reads the state; with metrics also the metrics page.
func (g *gateway) take(ctx context.Context, metrics bool) snapshot {
	s := snapshot{at: time.Now(), rss: g.rss()}
	s.text, s.err = g.get(ctx, statePath)
	if s.err == nil {
		s.err = s.decode()
	}
	if metrics {
		s.metrics, _ = g.get(ctx, "/metrics") // missing metrics show as missing where they are expected
		s.heap = heapOf(s.metrics)
		s.disk = g.disk()
	}
	return s
}

func (s *snapshot) decode() error {
	var state struct {
		Pools map[string]struct {
			Classes map[string]stateClass `json:"classes"`
		} `json:"pools"`
	}
	if err := json.Unmarshal(s.text, &state); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	if err := json.Unmarshal(s.text, &s.raw); err != nil {
		return err
	}
	s.classes = map[string]stateClass{}
	for _, pool := range state.Pools {
		for name, c := range pool.Classes {
			sum := s.classes[name]
			sum.InUse += c.InUse
			sum.Waiting += c.Waiting
			sum.Abandoned += c.Abandoned
			sum.Max += c.Max
			if sum.Decisions == nil {
				sum.Decisions = map[string]int64{}
			}
			for k, n := range c.Decisions {
				sum.Decisions[k] += n
			}
			s.classes[name] = sum
		}
	}
	return nil
}

// class sums the product's classes that a neutral name stands for.
func (s *snapshot) class(neutral string) (stateClass, error) {
	names, ok := productClasses[neutral]
	if !ok {
		return stateClass{}, fmt.Errorf("unknown class %q", neutral)
	}
	sum := stateClass{Decisions: map[string]int64{}}
	for _, n := range names {
		c, ok := s.classes[n]
		if !ok {
			return stateClass{}, fmt.Errorf("the state has no class %q", n)
		}
		sum.InUse += c.InUse
		sum.Waiting += c.Waiting
		sum.Abandoned += c.Abandoned
		for k, v := range c.Decisions {
			sum.Decisions[k] += v
		}
	}
	return sum, nil
}

func (c stateClass) refused() (n int64) {
	for name, count := range c.Decisions {
		if strings.HasPrefix(name, "refused") {
			n += count
		}
	}
	return n
}

// find collects the values of a key anywhere in decoded JSON.
func find(v any, key string) []any {
	var out []any
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			if sameName(k, key) {
				out = append(out, inner)
			}
			out = append(out, find(inner, key)...)
		}
	case []any:
		for _, inner := range v {
			out = append(out, find(inner, key)...)
		}
	}
	return out
}

// sameName compares names of fields without regard to case and separators.
func sameName(a, b string) bool {
	clean := strings.NewReplacer("_", "", "-", "", " ", "")
	return strings.EqualFold(clean.Replace(a), clean.Replace(b))
}

// findNumber sums the numbers found under a key; ok is false when there is none.
func findNumber(v any, key string) (sum float64, ok bool) {
	for _, one := range find(v, key) {
		if n, isNumber := one.(float64); isNumber {
			sum, ok = sum+n, true
		}
	}
	return sum, ok
}

// sampler reads the state again and again, for peaks.
type sampler struct {
	mu      sync.Mutex
	samples []snapshot
	stop    context.CancelFunc
	done    chan struct{}
}

// sampleEvery is the time between two samples; maxSamples bounds them.
const (
	sampleEvery = 40 * time.Millisecond
	maxSamples  = 20_000
)

// heapEvery is the number of samples between two looks at the heap.
const heapEvery = 5

func (g *gateway) sample(ctx context.Context, memory bool) *sampler {
	ctx, cancel := context.WithCancel(ctx)
	s := &sampler{stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for i := 0; pause(ctx, sampleEvery); i++ {
			one := g.take(ctx, memory && i%heapEvery == 0)
			one.text, one.raw, one.metrics = nil, nil, nil
			if one.err != nil {
				continue
			}
			s.mu.Lock()
			if len(s.samples) < maxSamples {
				s.samples = append(s.samples, one)
			}
			s.mu.Unlock()
		}
	}()
	return s
}

func (s *sampler) end() {
	s.stop()
	<-s.done
}

// most is the largest number of permits of a class in use between two times;
// zero times mean no bound.
func (s *sampler) most(neutral string, from, to time.Time) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := 0
	for i := range s.samples {
		one := &s.samples[i]
		if (!from.IsZero() && one.at.Before(from)) || (!to.IsZero() && one.at.After(to)) {
			continue
		}
		c, err := one.class(neutral)
		if err != nil {
			return 0, err
		}
		most = max(most, c.InUse)
	}
	return most, nil
}

// memory is the largest resident memory and the largest heap seen, in bytes.
func (s *sampler) memory() (rss, heap int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.samples {
		rss, heap = max(rss, one.rss), max(heap, one.heap)
	}
	return rss, heap
}
