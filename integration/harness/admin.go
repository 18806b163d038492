package harness

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// State is what GET /admission/state answers, as far as the tests look at it.
type State struct {
	Pools map[string]Pool `json:"pools"`
}

// Pool is the live state under one name of the admission directive.
type Pool struct {
	Total struct {
		Max    int `json:"max"`
		InUse  int `json:"in_use"`
		Shared int `json:"shared"`
	} `json:"total"`
	Classes map[string]Class `json:"classes"`
	Shares  json.RawMessage  `json:"shares"`
	Ingress Ingress          `json:"ingress"`
}

// Ingress counts webhooks and logouts by outcome, and refused public requests by class.
type Ingress struct {
	Webhooks map[string]int64 `json:"webhooks"`
	Limited  map[string]int64 `json:"limited"`
	Logouts  map[string]int64 `json:"logouts"`
	Senders  int              `json:"senders"`
}

// Class is the live state of one class. Decisions count from the start of the process.
type Class struct {
	Reserve   int               `json:"reserve"`
	Max       int               `json:"max"`
	InUse     int               `json:"in_use"`
	Waiting   int               `json:"waiting"`
	Abandoned int               `json:"abandoned"`
	Decisions map[string]uint64 `json:"decisions"`
	Outcomes  map[string]uint64 `json:"outcomes"`
	Bucket    *Bucket           `json:"bucket"`
	Bytes     *Bucket           `json:"bytes"`
}

// Bucket is the level of one of a class's buckets.
type Bucket struct {
	Burst  int64   `json:"burst"`
	Tokens float64 `json:"tokens"`
}

// Left is the level, 0 without a bucket.
func (b *Bucket) Left() float64 {
	if b == nil {
		return 0
	}
	return b.Tokens
}

// Refused sums the refusals of a class over all reasons.
func (c Class) Refused() uint64 {
	var n uint64
	for decision, count := range c.Decisions {
		if strings.HasPrefix(decision, "refused") {
			n += count
		}
	}
	return n
}

// Permits counts the permits that a class has ever given out.
func (c Class) Permits() uint64 { return c.Decisions["admitted"] + c.Decisions["waited"] }

// State reads the live state of every pool.
func (g *Gateway) State(tb testing.TB) State {
	tb.Helper()
	out, err := g.adminCall("GET", "/admission/state", "", "")
	if err != nil {
		tb.Fatalf("state: %v", err)
	}
	var s State
	if err := json.Unmarshal(out, &s); err != nil {
		tb.Fatalf("state: %v in %s", err, out)
	}
	return s
}

// Pool returns the state of the only pool of a gateway.
func (g *Gateway) Pool(tb testing.TB) Pool {
	tb.Helper()
	s := g.State(tb)
	if len(s.Pools) != 1 {
		tb.Fatalf("state: %d pools, want 1", len(s.Pools))
	}
	for _, p := range s.Pools {
		return p
	}
	return Pool{}
}

// Class returns the state of one class of the only pool.
func (g *Gateway) Class(tb testing.TB, name string) Class {
	tb.Helper()
	p := g.Pool(tb)
	c, ok := p.Classes[name]
	if !ok {
		tb.Fatalf("state: no class %q", name)
	}
	return c
}

// WaitInUse waits until exactly n permits of a class are in use.
func (g *Gateway) WaitInUse(tb testing.TB, class string, n int) {
	tb.Helper()
	Eventually(tb, 30*time.Second, fmt.Sprintf("class %s with %d in use", class, n), func() error {
		if c := g.Class(tb, class); c.InUse != n {
			return fmt.Errorf("%d in use, %d waiting, %d abandoned; decisions %v", c.InUse, c.Waiting, c.Abandoned, c.Decisions)
		}
		return nil
	})
}

// WaitIdle waits until no class of any pool has a permit in use, abandoned or waited for.
func (g *Gateway) WaitIdle(tb testing.TB, limit time.Duration) {
	tb.Helper()
	Eventually(tb, limit, "every class idle", func() error {
		for pool, p := range g.State(tb).Pools {
			for name, c := range p.Classes {
				if c.InUse != 0 || c.Waiting != 0 || c.Abandoned != 0 {
					return fmt.Errorf("pool %q class %s: %d in use, %d waiting, %d abandoned", pool, name, c.InUse, c.Waiting, c.Abandoned)
				}
			}
		}
		return nil
	})
}

// Reload loads a new configuration through the admin API and returns its error, if it was rejected.
func (g *Gateway) Reload(c Config) error {
	_, err := g.adminCall("POST", "/load", "text/caddyfile", g.Caddyfile(c))
	return err
}

// ChangeLimits lays a JSON merge patch over the limits of a pool.
func (g *Gateway) ChangeLimits(pool, patch string) error {
	_, err := g.adminCall("PATCH", "/admission/limits/"+pool, "application/json", patch)
	return err
}

// Metrics returns the text of the admin metrics endpoint.
func (g *Gateway) Metrics(tb testing.TB) string {
	tb.Helper()
	out, err := g.adminCall("GET", "/metrics", "", "")
	if err != nil {
		tb.Fatalf("metrics: %v", err)
	}
	return string(out)
}

var goroutineTotal = regexp.MustCompile(`^goroutine profile: total (\d+)`)

// Goroutines returns how many goroutines the gateway has, and their stacks grouped by equality.
func (g *Gateway) Goroutines(tb testing.TB) (int, string) {
	tb.Helper()
	out, err := g.adminCall("GET", "/debug/pprof/goroutine?debug=1", "", "")
	if err != nil {
		tb.Fatalf("goroutines: %v", err)
	}
	m := goroutineTotal.FindSubmatch(out)
	if m == nil {
		tb.Fatalf("goroutines: no total in %.100q", out)
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		tb.Fatal(err)
	}
	return n, string(out)
}

// Admin asks the admin endpoint and returns its answer, or its error.
func (g *Gateway) Admin(method, path, contentType, body string) string {
	out, err := g.adminCall(method, path, contentType, body)
	if err != nil {
		return err.Error()
	}
	return string(out)
}
