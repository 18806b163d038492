package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/caddy-admission/gateway/integration/flood"
)

const (
	serverWorkers = 16
	pushers       = 4
	pushPatience  = 15 * time.Second
)

// attack is one flood and the server it meets.
type attack struct {
	title, text string
	files       int // of a mebibyte each in the repository
	server      flood.BackendConfig
	flood       func(tip string) flood.Flood
	clones      bool // its clients want something, so what they get counts
}

var attacks = []attack{
	{"Slow clones", "96 addresses clone 16 MiB at 2 MiB/s, again and again: more than the kernel's buffers take off a worker.", 16,
		flood.BackendConfig{},
		func(tip string) flood.Flood {
			return flood.Flood{Clients: 96, Rate: 2 << 20, Pause: 200 * time.Millisecond, Driver: flood.Clone("/pub.git", tip)}
		}, true},
	{"Made-up credentials", "96 addresses, half of which ask to push (401 after a password check of 100 ms), half of which clone a public repository.", 4,
		flood.BackendConfig{AuthDelay: 100 * time.Millisecond},
		func(tip string) flood.Flood {
			return flood.Flood{Clients: 96, Pause: 50 * time.Millisecond, Driver: flood.Garbage("/pub.git", tip)}
		}, true},
	{"Knocking", "300 addresses ask to push without a credential; the server takes 240 ms for its 401.", 4,
		flood.BackendConfig{ChallengeDelay: 240 * time.Millisecond},
		func(string) flood.Flood {
			return flood.Flood{Clients: 300, Pause: 100 * time.Millisecond, Driver: flood.Discover("/pub.git")}
		}, false},
	{"Hit and run", "48 addresses start a clone and hang up after 100 ms; the server goes on packing for 4 s.", 4,
		flood.BackendConfig{Think: 4 * time.Second},
		func(tip string) flood.Flood {
			return flood.Flood{Clients: 48, Pause: 50 * time.Millisecond, Driver: flood.HitAndRun("/pub.git", tip, 100*time.Millisecond)}
		}, false},
}

// outcome is what became of the pushes at one system beside one attack, over
// all turns.
type outcome struct {
	tried, passed int
	quiet, beside []time.Duration // of pushes that passed
	clones        int
	seconds       float64
	peak          int
}

// pushes measures real pushes, first alone and then beside each attack.
func (b *bench) pushes(ctx context.Context) error {
	all := []system{
		b.caddy("Caddy, reverse_proxy", proxyOnly),
		nginx("nginx", sizes(nginxGit, serverWorkers/2, 64, 20, "")),
		haproxy("HAProxy", sizes(haproxyGit, serverWorkers/2, 64, 20, "10s")),
		b.caddy(gatewayName, fmt.Sprintf("admission {\n\t\ttotal %d\n\t}\n\t", serverWorkers)+proxyOnly),
	}
	for _, a := range attacks {
		results := make([]outcome, len(all))
		for turn := range b.turns {
			for k := range all {
				i := (k + turn) % len(all)
				fmt.Printf("%s: %s, turn %d of %d\n", a.title, all[i].name, turn+1, b.turns)
				if err := b.attack(ctx, a, all[i], &results[i]); err != nil {
					return fmt.Errorf("%s: %s: %w", a.title, all[i].name, err)
				}
			}
		}
		b.report.add(pushTable(a, all, results))
	}
	return nil
}

// attack runs one turn of one system with a server and a repository of its own.
func (b *bench) attack(ctx context.Context, a attack, s system, o *outcome) error {
	dir := filepath.Join(b.dir, fmt.Sprintf("turn-%d", time.Now().UnixNano()))
	bare, tip, err := repository(ctx, dir, a.files)
	if err != nil {
		return err
	}
	cfg := a.server
	cfg.Root, cfg.Workers = filepath.Dir(bare), serverWorkers
	server, err := flood.StartBackend(cfg)
	if err != nil {
		return err
	}
	defer server.Close()
	r, err := b.start(ctx, s, server.URL[len("http://"):])
	if err != nil {
		return err
	}
	defer r.stop()
	people, stop, err := newTeam(ctx, dir, r.addr)
	if err != nil {
		return err
	}
	defer stop()

	quiet := people.push(ctx, b.phase/2)
	o.quiet = append(o.quiet, passedTimes(quiet)...)
	server.ResetPeak()
	crowd, leave := context.WithCancel(ctx)
	defer leave()
	f := a.flood(tip)
	f.Target, f.Result = r.addr, flood.NewResult()
	var flooding sync.WaitGroup
	start := time.Now()
	flooding.Go(func() { f.Run(crowd) })
	flood.Pause(ctx, 2*time.Second) // the attack has begun before anybody pushes
	beside := people.push(ctx, b.phase)
	leave()
	flooding.Wait()
	o.tried += len(beside)
	o.passed += len(passedTimes(beside))
	o.beside = append(o.beside, passedTimes(beside)...)
	o.clones += f.Result.Served()
	o.seconds += time.Since(start).Seconds()
	o.peak = max(o.peak, server.Peak())
	return ctx.Err()
}

func passedTimes(all []flood.Attempt) (times []time.Duration) {
	for _, a := range all {
		if a.OK {
			times = append(times, a.Took)
		}
	}
	return times
}

func pushTable(a attack, all []system, results []outcome) *table {
	t := &table{title: "Pushes beside: " + a.title, text: a.text,
		header: []string{"system", "pushes tried", "passed", "quiet p50 ms", "p50 ms", "worst ms", "p50 to quiet p50", "clones/s", "most at the server"}}
	ours := results[len(results)-1]
	for i, s := range all {
		o := results[i]
		q, p := milliseconds(o.quiet, 0.5), milliseconds(o.beside, 0.5)
		cells := []any{"%d", o.tried, "%d", o.passed, "%.0f", q}
		if o.passed > 0 {
			cells = append(cells, "%.0f", p, "%.0f", milliseconds(o.beside, 1), "%.2f", p/q)
		} else {
			cells = append(cells, "%s", "–", "%s", "–", "%s", "–")
		}
		if a.clones {
			cells = append(cells, "%.1f", float64(o.clones)/o.seconds)
		} else {
			cells = append(cells, "%s", "–")
		}
		t.add(s.name, append(cells, "%d", o.peak)...)
		if i < len(all)-1 {
			t.better = append(t.better, o.betterThan(ours, s.name, a.clones)...)
		}
	}
	return t
}

// betterThan says in what a rival beat the gateway by a tenth or more. Times
// count only where as large a share of the pushes passed.
func (o outcome) betterThan(ours outcome, name string, clones bool) (lines []string) {
	share, our := ratio(o.passed, o.tried), ratio(ours.passed, ours.tried)
	if share > our {
		lines = append(lines, fmt.Sprintf("%s: %.0f %% of the pushes passed, through the gateway %.0f %%.", name, 100*share, 100*our))
	}
	p, q := milliseconds(o.beside, 0.5), milliseconds(ours.beside, 0.5)
	if share >= our && share > 0 && p < 0.9*q {
		lines = append(lines, fmt.Sprintf("%s: the median push took %.0f ms, through the gateway %.0f ms.", name, p, q))
	}
	c, d := float64(o.clones)/o.seconds, float64(ours.clones)/ours.seconds
	if clones && c > 1.1*d {
		lines = append(lines, fmt.Sprintf("%s served %.1f clones a second, the gateway %.1f.", name, c, d))
	}
	return lines
}

func ratio(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

func milliseconds(times []time.Duration, q float64) float64 {
	return float64(flood.Quantile(times, q).Microseconds()) / 1000
}
