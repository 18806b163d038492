package cases

import (
	"fmt"
	"strconv"
	"strings"
)

// responses checks all exchanges of one step.
func (v *verdict) responses(name string, x ResponseExpect) {
	list := v.w.book.of(name)
	if len(list) == 0 {
		v.differ(name, "at least one request", "none")
		return
	}
	c := &responseCheck{v: v, name: name, x: x, list: list}
	c.statuses()
	c.counts()
	c.origin()
	c.headers()
	c.bodies()
	c.times()
	c.streams()
	c.sockets()
	c.git()
}

// responseCheck compares the exchanges of one step.
type responseCheck struct {
	v    *verdict
	name string
	x    ResponseExpect
	list []*exchange
}

func (c *responseCheck) differ(what, expected, seen string, args ...any) {
	c.v.differ(c.name+" "+what, expected, seen, args...)
}

func (c *responseCheck) statuses() {
	for _, allowed := range []Ints{c.x.Status, c.x.StatusesAllIn} {
		if len(allowed) == 0 {
			continue
		}
		for _, e := range c.list {
			if !contains(allowed, e.status) {
				c.differ("status", "all of "+joinInts(allowed), "%s", summary(c.list))
				break
			}
		}
	}
	if len(c.x.RefusedStatus) == 0 {
		return
	}
	refused := c.refused()
	if len(refused) == 0 {
		c.differ("refused status", "refusals with "+joinInts(c.x.RefusedStatus), "no refusal: %s", summary(c.list))
	}
	for _, e := range refused {
		if !contains(c.x.RefusedStatus, e.status) {
			c.differ("refused status", joinInts(c.x.RefusedStatus), "%s", summary(c.list))
			return
		}
	}
}

func (c *responseCheck) refused() (list []*exchange) {
	for _, e := range c.list {
		if e.refused() {
			list = append(list, e)
		}
	}
	return list
}

// matches reports whether an exchange counts under a word.
func (c *responseCheck) matches(e *exchange, word string) bool {
	switch word {
	case "gateway_refused":
		return e.refused()
	case "closed_or_refused":
		return !e.unfinished && (e.status == 0 || e.status >= 400 || !e.complete)
	case "closed":
		return e.closedBy == "gateway"
	case "complete":
		return e.complete
	case "upstream":
		return c.fromUpstream(e)
	}
	if class, ok := strings.CutSuffix(word, "xx"); ok {
		return strconv.Itoa(e.status/100) == class
	}
	return strconv.Itoa(e.status) == word
}

func (c *responseCheck) counts() {
	others := 0
	for _, e := range c.list {
		counted := false
		for word := range c.x.Counts {
			counted = counted || c.matches(e, word)
		}
		if !counted {
			others++
		}
	}
	for _, word := range sortedKeys(c.x.Counts) {
		n := 0
		for _, e := range c.list {
			if c.matches(e, word) {
				n++
			}
		}
		if want := c.x.Counts[word]; !want.Holds(float64(n)) {
			c.differ("count of "+word, want.String(), "%d of %d: %s", n, len(c.list), summary(c.list))
		}
	}
	if limit := c.x.OtherStatusMax; limit != nil && float64(others) > *limit {
		c.differ("other statuses", "at most "+number(*limit), "%d: %s", others, summary(c.list))
	}
}

func (c *responseCheck) fromUpstream(e *exchange) bool {
	return !e.refused() && e.status != 0 && len(c.v.w.callsOf(e)) > 0
}

// callsOf are the arrivals of an exchange at an upstream, without questions.
func (w *world) callsOf(e *exchange) []call {
	return w.ledger.seen(func(one *call) bool { return one.request != nil && one.request.id == e.wire.id && !one.question })
}

func (c *responseCheck) origin() {
	for _, e := range c.list {
		switch {
		case c.x.From == "gateway" && !e.refused():
			c.differ("answer", "from the gateway, marked as a refusal", "%s", summary(c.list))
			return
		case c.x.From == "upstream" && !c.fromUpstream(e):
			c.differ("answer", "from the upstream", "%s; arrivals there: %d", summary(c.list), len(c.v.w.callsOf(e)))
			return
		}
	}
	if c.x.Class == "" {
		return
	}
	for _, e := range c.list {
		if got := c.v.w.classOf(e); got != c.x.Class {
			c.differ("class", c.x.Class, "%s (%s)", orNone(got), e.outcome())
			return
		}
	}
}

func (c *responseCheck) headers() {
	for _, name := range sortedKeys(c.x.Header) {
		c.header(name, c.x.Header[name], c.list)
	}
	refused := c.refused()
	if len(c.x.RefusedHeader) > 0 && len(refused) == 0 {
		c.differ("refusals", "at least one", "%s", summary(c.list))
	}
	for _, name := range sortedKeys(c.x.RefusedHeader) {
		c.header(name, c.x.RefusedHeader[name], refused)
	}
	if want := c.x.RefusedContentType; want != "" {
		for _, e := range refused {
			if got := e.header.Get("Content-Type"); !strings.HasPrefix(got, want) {
				c.differ("content type of refusals", want, "%q", got)
				return
			}
		}
	}
}

// header checks one field in every exchange of a list.
func (c *responseCheck) header(name string, want HeaderExpect, list []*exchange) {
	for _, e := range list {
		values := e.header.Values(name)
		upstream := ""
		if want.EqualsUpstream {
			for _, one := range c.v.w.callsOf(e) {
				upstream = one.challenge
			}
			want.Equals = &upstream
		}
		if problem := want.check(values); problem != "" {
			c.differ("header "+name, problem, "%q in %s", values, e.outcome())
			return
		}
	}
}

// check returns what is expected where the values differ from it, else "".
func (h HeaderExpect) check(values []string) string {
	if h.Absent {
		if len(values) > 0 {
			return "absent"
		}
		return ""
	}
	if len(values) == 0 {
		return "present"
	}
	value := values[0]
	n, err := strconv.Atoi(value)
	switch {
	case h.Int && err != nil:
		return "a whole number"
	case h.Min != nil && (err != nil || float64(n) < *h.Min):
		return "at least " + number(*h.Min)
	case h.Max != nil && (err != nil || float64(n) > *h.Max):
		return "at most " + number(*h.Max)
	case h.Equals != nil && value != *h.Equals:
		return fmt.Sprintf("%q", *h.Equals)
	case h.Prefix != nil && !strings.HasPrefix(value, *h.Prefix):
		return fmt.Sprintf("%q first", *h.Prefix)
	case h.Contains != nil && !strings.Contains(value, *h.Contains):
		return fmt.Sprintf("%q inside", *h.Contains)
	}
	return ""
}

// drainAllowance is what a Go server may take of an HTTP/1.1 body before it
// answers, in bytes.
const drainAllowance = 320 << 10

func (c *responseCheck) bodies() {
	for _, e := range c.list {
		if limit := c.x.BodyReadMax; limit != nil && float64(e.taken) > *limit+drainAllowance {
			c.differ("body taken", "at most "+number(*limit)+" bytes", "%d", e.taken)
		}
		if limit := c.x.BodyMaxBytes; limit != nil && float64(e.bodyBytes) > *limit {
			c.differ("answer body", "at most "+number(*limit)+" bytes", "%d", e.bodyBytes)
		}
		if c.x.BodyBytes.Set() && !c.x.BodyBytes.Holds(float64(e.bodyBytes)) {
			c.differ("answer body", c.x.BodyBytes.String()+" bytes", "%d", e.bodyBytes)
		}
		for _, part := range c.x.BodyContains {
			if !strings.Contains(string(e.body), part) {
				c.differ("answer body", fmt.Sprintf("%q inside", part), "%q", clip(e.body))
			}
		}
		if want := c.x.Complete; want != nil && e.complete != *want {
			c.differ("complete", fmt.Sprint(*want), "%v: %s, %d bytes, %v", e.complete, e.outcome(), e.bodyBytes, e.err)
		}
	}
}

func (c *responseCheck) times() {
	for _, e := range c.list {
		if limit := c.x.WithinMS; limit != nil && e.took() > c.v.w.runner.scaled(*limit) {
			c.differ("time", "within "+number(*limit)+" ms", "%d ms (%s)", e.took().Milliseconds(), e.outcome())
			return
		}
		if want := c.x.ClosedBy; want != "" && e.closedBy != want {
			c.differ("closed by", want, "%s (%s, %d bytes)", orNone(e.closedBy), e.outcome(), e.bodyBytes)
		}
	}
}
