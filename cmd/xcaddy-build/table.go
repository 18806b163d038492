package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caddy-admission/gateway/integration/flood"
)

// table prints one row per phase.
func table(rows []phase) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tpushes tried\tpassed\tmedian\tworst\tclones served\tclones refused\tmost at the server\t")
	for _, p := range rows {
		passed, times := 0, []time.Duration(nil)
		for _, a := range p.pushes {
			if a.OK {
				passed++
				times = append(times, a.Took)
			}
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%d\t%d\t%d of %d\t\n", p.name, len(p.pushes), passed,
			short(flood.Quantile(times, 0.5)), short(flood.Quantile(times, 1)),
			p.clones.Served(), p.clones.Refused(), p.peak, demoWorkers)
	}
	_ = w.Flush()
	return b.String()
}

func short(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return d.Round(10 * time.Millisecond).String()
}
