package caddymodule

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/internal/adminapi"
)

// printStatus writes the live table, one line a class.
func printStatus(w io.Writer, s adminapi.State) error {
	if len(s.Pools) == 0 {
		_, err := fmt.Fprintln(w, "no pools: no site of the running configuration uses admission")
		return err
	}
	for i, name := range slices.Sorted(maps.Keys(s.Pools)) {
		p := s.Pools[name]
		if i > 0 {
			_, _ = fmt.Fprintln(w)
		}
		note := ""
		if !p.Active {
			note = " (named by no configuration; its last requests are still running)"
		}
		if p.LimitsChanged {
			note = " (limits changed through the admin endpoint)"
		}
		_, _ = fmt.Fprintf(w, "pool %s%s: %d of %d git permits, %d of %d shared, %d callers\n",
			name, note, p.Total.InUse, p.Total.Max, p.Total.SharedUsed, p.Total.Shared, p.Callers.Tracked)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		_, _ = fmt.Fprintln(t, "class\tin use\tabandoned\twaiting\treserve\tmax\tadmitted\twaited\trefused\t")
		for class := range admission.NumClasses {
			c := p.Classes[class.String()]
			_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%s\t%d\t%d\t%d\t\n", class, c.InUse, c.Abandoned, c.Waiting,
				c.Reserve, maxText(c.Max), c.Decisions["admitted"], c.Decisions["waited"], refusedOf(c))
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if p.Spool != nil {
			printSpool(w, p.Spool)
		}
	}
	return nil
}

func maxText(n int) string {
	if n == admission.Unlimited {
		return "-"
	}
	return fmt.Sprint(n)
}

func refusedOf(c adminapi.Class) (n uint64) {
	for decision, count := range c.Decisions {
		if strings.HasPrefix(decision, "refused_") {
			n += count
		}
	}
	return n
}

// printExplanation writes an explanation for people.
func printExplanation(w io.Writer, x *adminapi.Explanation) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("class", "%s", x.Class)
	row("pool", "%s", orNone(x.Pool))
	row("site", "%s", orNone(x.Site))
	row("reachable", "%v (server %s, answered by %s)", x.Reachable, x.Server, x.AnsweredBy)
	if x.Refused != 0 {
		row("refused", "%d", x.Refused)
	}
	if x.Kind != "" {
		row("request", "%s %s", x.Kind, x.Repository)
	}
	if x.Reachable {
		counts := ""
		if !x.Caller.Counts {
			counts = " (shared by callers that cannot be told apart: no limits per caller)"
		}
		row("caller", "%s%s", orNone(x.Caller.Prefix), counts)
	}
	if b := x.Budget; b != nil {
		row("permits", "%d reserved, at most %s, %d in use, %d waiting", b.Reserve, maxText(b.Max), b.InUse, b.Waiting)
		row("per caller", "%s", capsText(b.CallerMax))
		row("buckets", "class %s; bytes %s; caller %s", b.Bucket, b.Bytes, b.CallerBucket)
		row("times", "wait %s; deadline %s", b.Wait, b.Deadline)
	}
	for i, why := range x.Why {
		row([]string{"why", ""}[min(i, 1)], "%s", why)
	}
	return t.Flush()
}

func capsText(caps map[string]int) string {
	if len(caps) == 0 {
		return "no cap"
	}
	var parts []string
	for _, scope := range slices.Sorted(maps.Keys(caps)) {
		parts = append(parts, fmt.Sprintf("%d per %s", caps[scope], scope))
	}
	return strings.Join(parts, ", ")
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
