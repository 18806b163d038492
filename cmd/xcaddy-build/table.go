package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caddy-admission/gateway/integration/flood"
)

// table prints one row per phase. The times are those of pushes that passed.
func table(rows []*phase) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tpushes tried\tpassed\tmedian\tworst\tclones served\trefused\tmost at the server\t")
	for _, p := range rows {
		tried, passed, times := p.result()
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%d\t%d\t%d of %d\t\n", p.name, tried, passed,
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
