package cases

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// check refuses words and names that the runner does not know, and cases that
// expect nothing.
func check(c *Case) error {
	k := &checker{c: c, names: map[string]string{}, tokens: newTokens("127.0.0.1:1")}
	if c.ID == "" {
		k.fail("no id")
	}
	if len(c.Steps) == 0 {
		k.fail("no steps")
	}
	k.setup()
	k.steps(c.Steps)
	k.references(c.Steps)
	k.expect()
	return errors.Join(k.errs...)
}

// checker collects what is wrong with one case.
type checker struct {
	c        *Case
	names    map[string]string // step name → operation
	tokens   *tokens
	expected int
	errs     []error
}

func (k *checker) fail(format string, args ...any) {
	k.errs = append(k.errs, fmt.Errorf(format, args...))
}

func (k *checker) behaviour(where, text string) {
	if text == "" {
		return
	}
	if _, err := parseBehaviour(text); err != nil {
		k.fail("%s: %w", where, err)
	}
}

func (k *checker) setup() {
	s := &k.c.Setup
	if s.Profile != "" && s.Profile != "small" {
		k.fail("setup: unknown profile %q", s.Profile)
	}
	for name := range s.Classes {
		if productClasses[name] == nil {
			k.fail("setup: unknown class %q", name)
		}
		for _, to := range s.Classes[name].LendTo {
			if productClasses[to] == nil {
				k.fail("setup: class %s lends to unknown class %q", name, to)
			}
		}
	}
	for name, text := range s.Upstreams {
		k.behaviour("setup: upstream "+name, text)
	}
	for name := range s.Budgets {
		_, renamed := budgetClass[name]
		if productClasses[name] == nil && !renamed && !slices.Contains([]string{"webhook_requests", "webhook_bytes", "webhook_per_hook", "login_account"}, name) {
			k.fail("setup: unknown budget %q", name)
		}
	}
	for _, p := range s.Proto {
		if !slices.Contains([]string{"h1", "h2", "h2c", "h3"}, p) {
			k.fail("setup: unknown proto %q", p)
		}
	}
	for _, v := range s.Variants {
		if variantChecks[v] == nil {
			k.fail("setup: unknown caddyfile variant %q", v)
		}
	}
}

func (k *checker) steps(steps []Step) {
	for i := range steps {
		s := &steps[i]
		if s.Name != "" && s.Op != "upstream" {
			if op, taken := k.names[s.Name]; taken && op != s.Op {
				k.fail("step name %q is used by %s and %s", s.Name, op, s.Op)
			}
			k.names[s.Name] = s.Op
		}
		k.step(s)
		k.steps(s.Steps)
	}
}

func (k *checker) step(s *Step) {
	where := "step " + s.Op + " " + s.Name
	k.behaviour(where, s.Behaviour)
	if s.Op != "ws" || s.Upstream != "echo" {
		k.behaviour(where, s.Upstream)
	}
	if !slices.Contains([]string{"", "h1", "h2", "h2c", "h3"}, s.Proto) {
		k.fail("%s: unknown proto %q", where, s.Proto)
	}
	switch s.Op {
	case "req", "obey_retry_after", "ws", "h3_resume", "h2_reset_flood", "h2_continuation_flood":
		if s.Name == "" && s.Op != "h2_reset_flood" && s.Op != "h2_continuation_flood" {
			k.fail("%s: no name", where)
		}
		for i := range min(s.count(), 3) {
			if _, err := k.tokens.build(s, i, ""); err != nil {
				k.fail("%s: %w", where, err)
			}
		}
	case "upstream":
		if _, set := k.c.Setup.Upstreams[s.Name]; s.Name != gitUpstream && s.Name != ciUpstream && !set {
			k.fail("%s: unknown upstream", where)
		}
	case "git":
		if args, err := gitArguments(s.Cmd); err != nil || len(args) == 0 {
			k.fail("%s: cmd %s: %v", where, s.Cmd, err)
		}
	case "wait":
		if s.MS <= 0 {
			k.fail("%s: no ms", where)
		}
	}
}

// references checks the names that steps use of other steps.
func (k *checker) references(steps []Step) {
	for i := range steps {
		s := &steps[i]
		for _, name := range append(slices.Clone(s.Names), s.Of) {
			if name != "" && k.names[name] == "" {
				k.fail("step %s %s: unknown step %q", s.Op, s.Name, name)
			}
		}
		k.references(s.Steps)
	}
}

// ranges that have a closed set of words.
var (
	countWords  = []string{"gateway_refused", "closed_or_refused", "upstream", "closed", "complete"}
	logScopes   = []string{"gateway_log", "log", "admin_api", "metrics", "spool_index", "access_log", "status_page"}
	metricNames = []string{"in_flight", "peak_in_flight", "queue_depth", "refused_total", "tokens_spent", "tracked_keys", "series_total",
		"key_table_full_total", "label_values_from_request", "consecutive_refusals", "accepted_minus_delivered_minus_depth", "abandoned", "depth"}
)

func (k *checker) expect() {
	e := &k.c.Expect
	for name, r := range e.Responses {
		k.expected++
		if k.names[name] == "" {
			k.fail("expect: responses of unknown step %q", name)
		}
		k.response(name, r)
	}
	for name := range e.Upstream {
		k.expected++
		if _, set := k.c.Setup.Upstreams[name]; name != gitUpstream && name != ciUpstream && !set {
			k.fail("expect: unknown upstream %q", name)
		}
	}
	for _, m := range e.Metrics {
		k.expected++
		k.metric(m)
	}
	if e.Log != nil {
		k.expected++
		for _, s := range e.Log.Scope {
			if !slices.Contains(logScopes, s) {
				k.fail("expect: unknown log scope %q", s)
			}
		}
	}
	k.named("config", sortedKeys(e.Config), "validate_config", "reload")
	for name := range e.Admin {
		if name != "repository_lane" {
			k.named("admin", []string{name}, "admin")
		}
		k.expected++
	}
	if e.Limits != nil || e.ClassesAsListed {
		k.expected++
	}
	if k.expected == 0 {
		k.fail("expect: nothing")
	}
}

func (k *checker) named(what string, names []string, ops ...string) {
	for _, name := range names {
		k.expected++
		if !slices.Contains(ops, k.names[name]) {
			k.fail("expect: %s of unknown step %q", what, name)
		}
	}
}

func (k *checker) response(name string, r ResponseExpect) {
	for word := range r.Counts {
		if !slices.Contains(countWords, word) && !isStatusWord(word) {
			k.fail("expect: step %s: unknown count %q", name, word)
		}
	}
	if !slices.Contains([]string{"", "gateway", "upstream"}, r.From) {
		k.fail("expect: step %s: unknown from %q", name, r.From)
	}
	if !slices.Contains([]string{"", "gateway", "client"}, r.ClosedBy) {
		k.fail("expect: step %s: unknown closed_by %q", name, r.ClosedBy)
	}
	if r.Class != "" && productClasses[r.Class] == nil {
		k.fail("expect: step %s: unknown class %q", name, r.Class)
	}
}

func (k *checker) metric(m MetricExpect) {
	if !slices.Contains(metricNames, m.Name) {
		k.fail("expect: unknown metric %q", m.Name)
	}
	if m.Class != "" && productClasses[m.Class] == nil {
		k.fail("expect: metric %s: unknown class %q", m.Name, m.Class)
	}
	if m.Min == nil && m.Max == nil && m.Eq == nil && m.MaxGrowth == nil && !m.Exposed {
		k.fail("expect: metric %s: nothing expected", m.Name)
	}
	if m.At != "" && m.At != "end" && m.At != beforeRelease && k.names[m.At] == "" {
		k.fail("expect: metric %s: unknown at %q", m.Name, m.At)
	}
	if m.During != "" && k.names[m.During] == "" {
		k.fail("expect: metric %s: unknown during %q", m.Name, m.During)
	}
}

// isStatusWord accepts "200" and "2xx".
func isStatusWord(word string) bool {
	if len(word) != 3 || word[0] < '1' || word[0] > '5' {
		return false
	}
	return word[1:] == "xx" || strings.Trim(word[1:], "0123456789") == ""
}
