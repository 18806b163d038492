package cases

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// verdict compares everything expected with what was seen.
func (w *world) verdict(ctx context.Context) []string {
	v := &verdict{w: w, expect: &w.c.Expect}
	for _, name := range sortedKeys(v.expect.Responses) {
		v.responses(name, v.expect.Responses[name])
	}
	for _, name := range sortedKeys(v.expect.Upstream) {
		v.upstream(name, v.expect.Upstream[name])
	}
	for _, m := range v.expect.Metrics {
		v.metric(m)
	}
	v.limits()
	v.log(ctx)
	for _, name := range sortedKeys(v.expect.Config) {
		v.config(name, v.expect.Config[name])
	}
	for _, name := range sortedKeys(v.expect.Admin) {
		v.admin(name, v.expect.Admin[name])
	}
	v.classes()
	v.crashes()
	return v.problems
}

// verdict collects what differs.
type verdict struct {
	w        *world
	expect   *Expect
	problems []string
}

// differ notes one difference: where, what was expected, what was seen.
func (v *verdict) differ(where, expected, seen string, args ...any) {
	v.problems = append(v.problems, fmt.Sprintf("%s: expected %s, seen %s", where, expected, fmt.Sprintf(seen, args...)))
}

func (v *verdict) classes() {
	if !v.expect.ClassesAsListed {
		return
	}
	if len(v.w.book.classes) == 0 {
		v.differ("classes", "a table", "none")
	}
	for _, line := range v.w.book.classes {
		got := neutralClass(line.got)
		good := got == line.want
		switch line.want {
		case "reject":
			good = got == "reject"
		case "reject-or-strictest":
			good = got == "reject" || got == "git_anon"
		}
		if !good {
			v.differ("class of "+line.method+" "+line.target, line.want, "%s", orNone(got))
		}
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

var crash = regexp.MustCompile(`(?m)^(WARNING: DATA RACE|panic: |fatal error: )|http: panic serving`)

// crashes fails the case when the gateway's log shows a data race or a panic,
// whatever the case expects.
func (v *verdict) crashes() {
	log := v.w.gateway.log()
	for _, at := range crash.FindAllIndex(log, -1) {
		line := log[at[0]:]
		if bytes.Contains(line[:min(len(line), 300)], []byte("abort Handler")) {
			continue // how a reverse proxy ends a broken answer
		}
		v.differ("gateway log", "no data race and no panic", "%s", clip(line))
		return
	}
}

func joinInts(list []int) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(list)), ", "), "[]")
}

// summary counts statuses for messages, as in "200×3, 503×1, none×2".
func summary(list []*exchange) string {
	counts := map[string]int{}
	for _, e := range list {
		counts[e.outcome()]++
	}
	var parts []string
	for _, k := range sortedKeys(counts) {
		parts = append(parts, fmt.Sprintf("%s×%d", k, counts[k]))
	}
	return strings.Join(parts, ", ")
}

// outcome names how an exchange ended, for messages.
func (e *exchange) outcome() string {
	switch {
	case e.unfinished:
		return "running"
	case e.status == 0 && e.err != nil:
		return "none (" + shorten(e.err.Error()) + ")"
	case e.status == 0:
		return "none"
	case e.refused():
		return fmt.Sprintf("%d %s/%s", e.status, e.refusal("class"), e.refusal("reason"))
	}
	return fmt.Sprint(e.status)
}

func shorten(s string) string {
	if i := strings.LastIndex(s, ": "); i >= 0 {
		s = s[i+2:]
	}
	return s
}

func contains(list []int, n int) bool { return slices.Contains(list, n) }
