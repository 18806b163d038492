package cases

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func (v *verdict) limits() {
	x := v.expect.Limits
	if x == nil {
		return
	}
	if limit := x.RSSGrowthMaxMiB; limit != nil {
		grown := float64(v.w.memoryGrowth()) / (1 << 20)
		if grown > *limit {
			v.differ("memory", "growth of at most "+number(*limit)+" MiB", "%.0f MiB", grown)
		}
	}
	if limit := x.DiskGrowthMaxMiB; limit != nil {
		grown := float64(v.w.end.disk-v.w.start.disk) / (1 << 20)
		if grown > *limit {
			v.differ("disk", "growth of at most "+number(*limit)+" MiB", "%.0f MiB", grown)
		}
	}
	if limit := x.BytesReadOnRefusalMax; limit != nil {
		refused := 0
		for _, e := range v.w.book.all() {
			if !e.refused() {
				continue
			}
			refused++
			if float64(e.taken) > *limit+drainAllowance {
				v.differ("bytes read of refused "+e.wire.id, "at most "+number(*limit), "%d", e.taken)
			}
		}
		if refused == 0 {
			v.differ("bytes read on refusal", "refusals", "none")
		}
	}
}

// memoryGrowth is how much larger the process was at its largest than at its
// start, in bytes. A binary built with the race detector keeps several shadow
// bytes for each of its own; that is the detector's cost and not the
// product's, so the program's own account of its memory is used instead.
func (w *world) memoryGrowth() int64 {
	rss, heap := w.sampler.memory()
	if w.gateway.race && w.start.heap > 0 {
		return max(heap, w.end.heap) - w.start.heap
	}
	return max(rss, w.end.rss) - w.start.rss
}

// heapOf is the memory that a Go program uses, by its own metrics.
func heapOf(page []byte) int64 {
	sum, _ := metricValue(page, "go_memstats_heap_inuse_bytes", "go_memstats_stack_inuse_bytes")
	return int64(sum)
}

func metricValue(page []byte, names ...string) (sum float64, ok bool) {
	for _, line := range strings.Split(string(page), "\n") {
		for _, name := range names {
			if rest, found := strings.CutPrefix(line, name+" "); found {
				var n float64
				if _, err := fmt.Sscan(rest, &n); err == nil {
					sum, ok = sum+n, true
				}
			}
		}
	}
	return sum, ok
}

// log checks what was written.
func (v *verdict) log(ctx context.Context) {
	x := v.expect.Log
	if x == nil {
		return
	}
	places := v.places(ctx, x.Scope)
	if len(bytes.Join(slices.Collect(maps.Values(places)), nil)) == 0 {
		v.differ("log", "something to search", "nothing in %s", strings.Join(x.Scope, ", "))
	}
	if slices.Contains(x.Scope, "admin_api") && v.w.end.err != nil {
		v.differ("log", "a state to search", "%v", v.w.end.err)
	}
	for _, want := range x.MustContain {
		found := false
		for _, text := range places {
			found = found || want.in(text)
		}
		if !found {
			v.differ("log", want.String(), "no such line")
		}
	}
	for _, text := range x.MustNotContain {
		secret, err := v.w.tokens.expand(text, scope{})
		if err != nil {
			v.differ("log", "a known token", "%v", err)
			continue
		}
		for _, place := range sortedKeys(places) {
			if at := bytes.Index(places[place], []byte(secret)); at >= 0 {
				v.differ(place, fmt.Sprintf("not %q", text), "%s", clip(lineAround(places[place], at)))
			}
		}
	}
}

func (l LogLine) String() string {
	if l.Text != "" {
		return fmt.Sprintf("%q", l.Text)
	}
	return fmt.Sprintf("an event %q with %s %q", l.Event, l.Field, l.Value)
}

// in looks for the line in a log of JSON lines.
func (l LogLine) in(log []byte) bool {
	if l.Text != "" {
		return bytes.Contains(log, []byte(l.Text))
	}
	for _, line := range bytes.Split(log, []byte("\n")) {
		var entry map[string]any
		if json.Unmarshal(line, &entry) != nil {
			continue
		}
		msg, _ := entry["msg"].(string)
		event, _ := entry["event"].(string)
		if !strings.Contains(msg+" "+event, l.Event) {
			continue
		}
		if l.Field == "" {
			return true
		}
		for _, value := range find(entry, l.Field) {
			if fmt.Sprint(value) == l.Value {
				return true
			}
		}
	}
	return false
}

func lineAround(text []byte, at int) []byte {
	from := bytes.LastIndexByte(text[:at], '\n') + 1
	to := bytes.IndexByte(text[at:], '\n')
	if to < 0 {
		to = len(text) - at
	}
	return text[from : at+to]
}

// places are the texts that a scope names. An empty scope is the whole log of
// the process.
func (v *verdict) places(ctx context.Context, scope []string) map[string][]byte {
	if len(scope) == 0 {
		return map[string][]byte{"log": v.w.gateway.log()}
	}
	out := map[string][]byte{}
	for _, name := range scope {
		switch name {
		case "log":
			out[name] = v.w.gateway.log()
		case "gateway_log":
			out[name] = ownLines(v.w.gateway.log())
		case "access_log":
			out[name], _ = os.ReadFile(v.w.gateway.file("access.log")) // no file: nothing was written
		case "admin_api", "status_page":
			out[name] = v.w.end.text
		case "metrics":
			out[name] = []byte(strings.Join(productSeries(v.w.end.metrics), "\n"))
		case "spool_index":
			out[name] = v.w.spoolBytes()
		}
	}
	return out
}

// ownLines are the lines that the product wrote, and those that are no JSON.
func ownLines(log []byte) []byte {
	var out [][]byte
	for _, line := range bytes.Split(log, []byte("\n")) {
		var entry struct{ Logger string }
		if json.Unmarshal(line, &entry) == nil && !slices.Contains(strings.Split(entry.Logger, "."), "admission") {
			continue
		}
		out = append(out, line)
	}
	return bytes.Join(out, []byte("\n"))
}

// spoolBytes is everything below the spool directory.
func (w *world) spoolBytes() []byte {
	var out []byte
	_ = filepath.WalkDir(w.gateway.spoolDir(), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			raw, _ := os.ReadFile(path) // it may be gone by now
			out = append(out, raw...)
		}
		return nil
	})
	return out
}
