package caddymodule

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caddy-admission/gateway/internal/adminapi"
)

// printDeliveries writes what is kept, one line a delivery.
func printDeliveries(w io.Writer, list adminapi.Deliveries) error {
	if len(list.Deliveries) == 0 {
		_, err := fmt.Fprintln(w, "nothing is kept")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "id\tpool\thook\trepository\tevent\tdelivery\treceived\tbytes\tstate\tattempts\tlast")
	for _, d := range list.Deliveries {
		state := d.State
		if d.Dead != "" {
			state += " (" + d.Dead + ")"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%d\t%s\n", d.ID, orNone(d.Pool), d.Hook, plainText(d.Repository),
			plainText(d.Event), plainText(d.Delivery), d.Received.Format(time.RFC3339), d.Bytes, state, d.Attempts, orNone(d.Last))
	}
	return t.Flush()
}

// plainText shows what a sender chose without the control characters that a
// terminal would obey.
func plainText(s string) string {
	return orNone(strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s))
}

func printDelivery(w io.Writer, d *adminapi.Delivery) error {
	if err := printDeliveries(w, adminapi.Deliveries{Deliveries: []adminapi.Kept{{Pool: d.Pool, Item: d.Item}}}); err != nil {
		return err
	}
	if d.Recovery != "" {
		_, _ = fmt.Fprintf(w, "\nrecovery: %s\n", d.Recovery)
	}
	_, _ = fmt.Fprintln(w)
	for _, name := range slices.Sorted(maps.Keys(d.Header)) {
		for _, value := range d.Header[name] {
			_, _ = fmt.Fprintf(w, "%s: %s\n", name, plainText(value))
		}
	}
	for _, name := range d.Restored {
		_, _ = fmt.Fprintf(w, "%s: (from the configuration)\n", name)
	}
	if d.Sealed {
		_, _ = fmt.Fprintln(w, "(credentials and query are kept encrypted)")
	}
	if len(d.Body) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\n%s\n", d.Body)
	return err
}

// printRefused writes what was not taken, one line a delivery, and how each
// kind is recovered.
func printRefused(w io.Writer, list adminapi.RefusedDeliveries) error {
	if len(list.Refused) == 0 {
		_, err := fmt.Fprintln(w, "nothing was refused since the start")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "at\tpool\thook\trepository\tevent\tdelivery\tverified\tstatus\treason\trecovered by")
	how := map[string]string{}
	for _, d := range list.Refused {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%v\t%d\t%s\t%s\n", d.At.Format(time.RFC3339), d.Pool, d.Hook, plainText(d.Repository),
			plainText(d.Event), plainText(d.DeliveryID), d.Verified, d.Status, d.Reason, d.RecoveredBy)
		how[d.Provider+", "+d.Reason] = d.How
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, kind := range slices.Sorted(maps.Keys(how)) {
		_, _ = fmt.Fprintf(w, "\n%s: %s\n", kind, how[kind])
	}
	return nil
}

// printSpool writes one line about what a pool keeps.
func printSpool(w io.Writer, s *adminapi.Spool) {
	note := ""
	if s.DiskFailing {
		note += "; THE DISK FAILS"
	}
	if s.Moving {
		note += "; moving to another directory"
	}
	for _, path := range slices.Sorted(maps.Keys(s.Hooks)) {
		h := s.Hooks[path]
		switch {
		case !h.Active && h.Due > 0:
			note += fmt.Sprintf("; %s: %d due, not configured", path, h.Due)
		case h.Down:
			note += fmt.Sprintf("; %s: receiver cannot be reached", path)
		}
	}
	_, _ = fmt.Fprintf(w, "spool %s: %d due, oldest %s, %d dead, %d of %d bytes%s\n",
		s.Dir, s.Depth, time.Duration(s.OldestAge*float64(time.Second)).Round(time.Second), s.Dead, s.Bytes, s.MaxBytes, note)
}
