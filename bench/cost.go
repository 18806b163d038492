package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// entrant is one system in a measurement of CPU.
type entrant struct {
	system
	path string
}

// sizes fills the parameters of a rival's configuration.
func sizes(config string, share, reading, rate int, queue string) string {
	return strings.NewReplacer("@SHARE@", fmt.Sprint(share), "@READING@", fmt.Sprint(reading), "@RATE@", fmt.Sprint(rate),
		"@RATE10@", fmt.Sprint(10*rate), "@READQUEUE@", queue).Replace(config)
}

const proxyOnly = "reverse_proxy @UPSTREAM@"

// gatewayName is the name of the gateway where it is one system.
const gatewayName = "gateway"

// proxied measures the CPU of one proxied request.
func (b *bench) proxied(ctx context.Context) error {
	for _, connections := range []int{16, 128} {
		t, err := b.compare(ctx, connections, 200, []entrant{
			{b.caddy("Caddy, reverse_proxy", proxyOnly), gitPath},
			{b.caddy(gatewayName+", class other", "admission\n\t"+proxyOnly), "/bench/page"},
			{b.caddy(gatewayName+", class anonymous", "admission {\n\t\ttotal 1024\n\t}\n\t"+proxyOnly), gitPath},
			{nginx("nginx, limits", sizes(nginxGit, 512, 512, 1_000_000, "")), gitPath},
			{haproxy("HAProxy, limits", sizes(haproxyGit, 512, 512, 1_000_000, "10s")), gitPath},
		}, false)
		if err != nil {
			return err
		}
		t.title = fmt.Sprintf("CPU of a proxied request, %d connections", connections)
		b.report.add(t)
	}
	return nil
}

// refused measures the CPU of one refusal.
func (b *bench) refused(ctx context.Context) error {
	t, err := b.compare(ctx, 16, 503, []entrant{
		{b.caddy("Caddy, respond 503", `respond "busy, try again in 5 s" 503`), gitPath},
		{b.caddy(gatewayName+", refuses", "admission {\n\t\ttotal 5\n\t\twait off\n\t}\n\t"+proxyOnly), gitPath},
		{nginx("nginx, limit_conn", sizes(nginxGit, 1, 1, 1_000_000, "")), gitPath},
		{haproxy("HAProxy, maxconn", sizes(haproxyGit, 1, 1, 1_000_000, "1ms")), gitPath},
	}, true)
	if err != nil {
		return err
	}
	t.title = "CPU of a refusal, 16 connections"
	b.report.add(t)
	return nil
}

// compare lets the entrants take turns under the same load, the first being what
// the others are compared with. full takes the one place of a system before it is
// measured, except of the first, which has none.
func (b *bench) compare(ctx context.Context, connections, status int, all []entrant, full bool) (*table, error) {
	up, err := startUpstream(ctx)
	if err != nil {
		return nil, err
	}
	defer up.server.Close()
	var systems []system
	for _, e := range all {
		systems = append(systems, e.system)
	}
	started, stopAll, err := b.startAll(ctx, systems, up.addr)
	if err != nil {
		return nil, err
	}
	defer stopAll()
	loads := make([]load, len(all))
	for i, r := range started {
		loads[i] = load{addr: r.addr, path: all[i].path, connections: connections, status: status}
	}
	costs, rates := make([][]float64, len(all)), make([][]float64, len(all))
	for round := range b.rounds {
		sums := make([]cost, len(all))
		for slice := range roundSlices {
			for k := range all {
				i := (k + round + slice) % len(all)
				if err := b.turn(ctx, started[i], loads[i], up, full && i > 0, &sums[i]); err != nil {
					return nil, fmt.Errorf("%s: %w", started[i].name, err)
				}
			}
		}
		for i, c := range sums {
			costs[i] = append(costs[i], float64(c.cpu.Microseconds())/float64(c.answers))
			rates[i] = append(rates[i], float64(c.answers)/b.round.Seconds())
		}
	}
	return b.costTable(all, costs, rates), nil
}

// roundSlices is into how many turns a system's round is cut, so that a moment in
// which the machine does something else meets all of them.
const roundSlices = 3

// cost is what a system has used and done.
type cost struct {
	cpu     time.Duration
	answers int64
}

// turn prepares a system, measures it once and adds to sum.
func (b *bench) turn(ctx context.Context, r *running, l load, up *upstream, full bool, sum *cost) error {
	if full {
		release, err := up.hold(ctx, r.addr)
		if err != nil {
			return err
		}
		defer release()
	}
	if err := warm(ctx, l); err != nil {
		return err
	}
	return b.measure(ctx, r, l, sum)
}

// warm waits until the system answers as it will be measured: a place that is
// held takes a moment to be.
func warm(ctx context.Context, l load) error {
	var err error
	for range 20 {
		if _, err = l.run(ctx, 100*time.Millisecond); err == nil || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(err, ctx.Err())
}

func (b *bench) measure(ctx context.Context, r *running, l load, sum *cost) error {
	before, err := cpuOf(r.pid)
	if err != nil {
		return err
	}
	n, err := l.run(ctx, b.round/roundSlices)
	if err != nil || n == 0 || ctx.Err() != nil {
		return errors.Join(err, ctx.Err(), fmt.Errorf("%d answers", n))
	}
	after, err := cpuOf(r.pid)
	sum.cpu += after - before
	sum.answers += n
	return err
}

// costTable compares round by round: what slows the machine down for a while
// slows both halves of a ratio.
func (b *bench) costTable(all []entrant, costs, rates [][]float64) *table {
	t := &table{header: []string{"system", "µs of CPU, median", "ratio to the first, median", "smallest", "largest", "answers/s, median"}}
	medians := map[string]float64{}
	for i, e := range all {
		var ratios []float64
		for round := range costs[i] {
			ratios = append(ratios, costs[i][round]/costs[0][round])
		}
		slices.Sort(ratios)
		medians[e.name] = median(ratios)
		t.add(e.name, "%.1f", median(costs[i]), "%.2f", median(ratios), "%.2f", ratios[0], "%.2f", ratios[len(ratios)-1], "%.0f", median(rates[i]))
	}
	ours := all[len(all)-3].name // the gateway stands before the two rivals
	for _, rival := range all[len(all)-2:] {
		if medians[rival.name] < medians[ours] {
			t.better = append(t.better, fmt.Sprintf("%s needs %.2f × the CPU of the %s.", rival.name, medians[rival.name]/medians[ours], ours))
		}
	}
	return t
}

func median(v []float64) float64 {
	s := slices.Clone(v)
	slices.Sort(s)
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}
