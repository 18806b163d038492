package cases

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// DefaultParallel is how many light cases run at once; most of their time is
// waiting.
const DefaultParallel = 4

// ScaleFromEnv is the factor on upper time bounds, from CASES_TIME_SCALE. The
// default of 2 is for a binary built with the race detector.
func ScaleFromEnv() float64 {
	if f, err := strconv.ParseFloat(os.Getenv("CASES_TIME_SCALE"), 64); err == nil && f > 0 {
		return f
	}
	return 2
}

// Binary is the gateway to test: GATEWAY_BINARY, or one that is built now with
// the race detector into the build cache's neighbourhood.
func Binary(ctx context.Context) (string, error) {
	if path := os.Getenv("GATEWAY_BINARY"); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("GATEWAY_BINARY: %w", err)
		}
		return filepath.Abs(path)
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	root := strings.TrimSpace(string(out))
	binary := filepath.Join(os.TempDir(), fmt.Sprintf("gateway-cases-%d", os.Getuid()), "caddy")
	build := exec.CommandContext(ctx, "go", "build", "-race", "-o", binary, "./cmd/caddy")
	build.Dir = root
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, text)
	}
	return binary, nil
}

// heavyRequests and heavyBytes tell a case that needs the machine for itself:
// beside others it would miss its times, or make them miss theirs.
const (
	heavyRequests = 300
	heavyBytes    = 16 << 20
	heavyRate     = 1 // tokens per second
)

// heavy reports whether a case should run alone.
func (c *Case) heavy() bool {
	requests, bytes := 0, int64(0)
	var add func([]Step, int)
	add = func(steps []Step, times int) {
		for i := range steps {
			s := &steps[i]
			if s.Op == "loop" {
				add(s.Steps, times*max(1, s.N))
				continue
			}
			requests += times * s.count()
			if s.Body != nil && s.Body.Bytes != nil {
				bytes += *s.Body.Bytes * int64(times*s.count())
			}
		}
	}
	add(c.Steps, 1)
	return requests > heavyRequests || bytes > heavyBytes || c.refills()
}

// refills reports whether a budget of the case fills again while its requests
// run: on a machine that is slow with them nothing would be refused.
func (c *Case) refills() bool {
	for _, b := range c.Setup.Budgets {
		if b.Rate >= heavyRate {
			return true
		}
	}
	return false
}

// RunAll runs light cases in parallel and then heavy ones one by one. Results
// are reported one at a time, in the order in which they come.
func (r *Runner) RunAll(ctx context.Context, list []Case, parallel int, report func(Result)) {
	var mu sync.Mutex
	tell := func(result Result) {
		mu.Lock()
		defer mu.Unlock()
		report(result)
	}
	slots := make(chan struct{}, max(1, parallel))
	var group sync.WaitGroup
	for i := range list {
		if list[i].heavy() || ctx.Err() != nil {
			continue
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			tell(r.Run(ctx, &list[i]))
		})
	}
	group.Wait()
	for i := range list {
		if list[i].heavy() && ctx.Err() == nil {
			tell(r.Run(ctx, &list[i]))
		}
	}
}
