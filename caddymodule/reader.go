package caddymodule

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"

	"github.com/caddy-admission/gateway/admission"
)

// reader reads one directive's block and goes on after a mistake, so that all
// of them are reported in one round.
type reader struct {
	d        *caddyfile.Dispenser
	mistakes []mistake
	where    map[string]position // setting path → where it was written
	matcher  func(token string) (caddy.ModuleMap, bool, error)
}

func newReader(d *caddyfile.Dispenser) *reader {
	r := &reader{d: d, where: map[string]position{}}
	r.where[""] = position{d.File(), d.Line()}
	return r
}

// line is one setting: its path ("class push reserve"), its arguments and its
// place.
type line struct {
	*reader
	path string
	args []string
	at   position
}

// word says how one setting is read. With repeat it may be written more than
// once in its block.
type word struct {
	read   func(*line)
	repeat bool
}

// block reads the settings of a block; path names the block, "" the
// directive's own.
func (r *reader) block(path string, words map[string]word) {
	nesting := r.d.Nesting()
	seen := map[string]int{}
	for r.d.NextBlock(nesting) {
		name := r.d.Val()
		l := &line{reader: r, path: join(path, name), at: position{r.d.File(), r.d.Line()}}
		inner := r.d.Nesting()
		l.args = r.d.RemainingArgs()
		w, known := words[name]
		before := len(r.mistakes)
		switch first, twice := seen[name]; {
		case !known:
			r.add(l.at, problemf(cmp.Or(path, "admission"), oneOf(words), "unknown setting %q", name))
		case twice && !w.repeat:
			r.add(l.at, problemf(l.path, "once in a block", "a second %s (the first is in line %d)", name, first))
		default:
			seen[name] = l.at.line
			if _, ok := r.where[l.path]; !ok {
				r.where[l.path] = l.at
			}
			w.read(l)
		}
		r.skipBlock(l.path, inner, len(r.mistakes) == before)
	}
}

// skipBlock passes over a block that the setting did not read. That is a
// mistake of its own only where there was none before.
func (r *reader) skipBlock(path string, nesting int, tell bool) {
	opened := false
	at := position{r.d.File(), r.d.Line()}
	for r.d.NextBlock(nesting) {
		opened = true
		r.d.RemainingArgs()
	}
	if opened && tell {
		r.add(at, problemf(path, "no block", "a block"))
	}
}

func (r *reader) add(at position, p admission.Problem) {
	r.mistakes = append(r.mistakes, mistake{Problem: p, at: at})
}

func (l *line) wrong(allowed string) {
	l.add(l.at, problemf(l.path, allowed, "%s", quoted(l.args)))
}

// want reports whether the line has from low to high arguments; allowed is the
// syntax for the message.
func (l *line) want(low, high int, allowed string) bool {
	if len(l.args) >= low && len(l.args) <= high {
		return true
	}
	l.wrong(allowed)
	return false
}

func (l *line) flag(to *bool) {
	if l.want(0, 0, "no argument") {
		*to = true
	}
}

func (l *line) count(to *int, low, high int) {
	allowed := countText(low, high)
	if !l.want(1, 1, allowed) {
		return
	}
	if n, ok := parseCount(l.args[0], low, high); ok {
		*to = n
		return
	}
	l.wrong(allowed)
}

func (l *line) optionalCount(to **int, low, high int) {
	n := low - 1
	l.count(&n, low, high)
	if n >= low {
		*to = &n
	}
}

// bucket reads "<burst> <n>/s"; with size the numbers may carry units.
func (l *line) bucket(to **admission.BucketConfig, size bool) {
	allowed := "<burst> <n>/s, for instance 200 50/s"
	if size {
		allowed = "<size> <size>/s, for instance 32MiB 8MiB/s"
	}
	if !l.want(2, 2, allowed) {
		return
	}
	burst, ok1 := parseAmount(l.args[0], size)
	perSecond, isRate := strings.CutSuffix(l.args[1], "/s")
	rate, ok2 := parseAmount(perSecond, size)
	if !ok1 || !ok2 || !isRate || burst < 1 || burst != float64(int64(burst)) || rate <= 0 {
		l.wrong(allowed)
		return
	}
	*to = &admission.BucketConfig{Burst: int64(burst), PerSecond: rate}
}

// maxAmount bounds bursts and rates, so that sums stay exact.
const maxAmount = 1 << 50

func parseAmount(s string, size bool) (float64, bool) {
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		return n, n >= 0 && n <= maxAmount // false for NaN
	}
	if !size {
		return 0, false
	}
	n, err := humanize.ParseBytes(s)
	return float64(n), err == nil && n <= maxAmount
}

func parseCount(s string, low, high int) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= low && n <= high
}

// maxDuration bounds every duration of the configuration.
const maxDuration = 30 * 24 * time.Hour

func parseDuration(s string) (time.Duration, bool) {
	d, err := caddy.ParseDuration(s)
	return d, err == nil && d >= 0 && d <= maxDuration
}

func countText(low, high int) string {
	if high == maxNumber {
		return "one whole number, at least " + strconv.Itoa(low)
	}
	return "one whole number from " + strconv.Itoa(low) + " to " + strconv.Itoa(high)
}

func oneOf[V any](m map[string]V) string {
	return "one of " + strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + " " + name
}
