package cases

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// upstream checks what one upstream has seen.
func (v *verdict) upstream(name string, x UpstreamExpect) {
	calls := v.w.ledger.seen(func(c *call) bool { return c.upstream == name })
	c := &upstreamCheck{v: v, name: name, x: x, calls: calls}
	for _, one := range calls {
		if !one.question {
			c.asked = append(c.asked, one)
		}
	}
	c.load()
	c.content()
	c.paths()
	c.seen()
	c.deliveries()
	c.order()
}

type upstreamCheck struct {
	v     *verdict
	name  string
	x     UpstreamExpect
	calls []call
	asked []call // without the gateway's own questions
}

func (c *upstreamCheck) differ(what, expected, seen string, args ...any) {
	c.v.differ("upstream "+c.name+" "+what, expected, seen, args...)
}

func (c *upstreamCheck) load() {
	if limit := c.x.PeakConcurrencyMax; limit != nil {
		if len(c.calls) == 0 {
			c.differ("load", "some", "no call")
		}
		if most := peak(c.calls, time.Time{}, time.Time{}); float64(most) > *limit {
			c.differ("peak concurrency", "at most "+number(*limit), "%d", most)
		}
	}
}

// content compares bodies and headers with what was sent.
func (c *upstreamCheck) content() {
	compared := 0
	for _, one := range c.asked {
		if one.request == nil || one.request.wire == nil || !one.bodyComplete {
			continue
		}
		compared++
		w := one.request.wire
		if c.x.BodySHAEqual != nil && (sha256.Sum256(w.body) == one.bodySHA) != *c.x.BodySHAEqual {
			c.differ("body of "+w.id, "the bytes that were sent", "%d of %d bytes, another digest", one.bodyBytes, len(w.body))
		}
		for _, name := range c.x.HeadersEqual {
			want, _ := w.headers.Get(name)
			if got := one.header.Get(name); got != want {
				c.differ("header "+name+" of "+w.id, strconv.Quote(want), "%q", got)
			}
		}
	}
	if (c.x.BodySHAEqual != nil || len(c.x.HeadersEqual) > 0) && compared == 0 {
		c.differ("requests", "at least one to compare", "none")
	}
	for _, step := range sortedKeys(c.x.BodyBytes) {
		var sum int64
		for _, one := range c.asked {
			if one.request != nil && one.request.step == step {
				sum = max(sum, one.bodyBytes)
			}
		}
		if want := c.x.BodyBytes[step]; !want.Holds(float64(sum)) {
			c.differ("body of "+step, want.String()+" bytes", "%d", sum)
		}
	}
}

func (c *upstreamCheck) paths() {
	if c.x.PathAsSentOrRejected == nil {
		return
	}
	for _, one := range c.asked {
		if one.request == nil {
			continue
		}
		if same := one.uri == one.request.wire.target; same != *c.x.PathAsSentOrRejected {
			c.differ("path", one.request.wire.target, "%s", one.uri)
		}
	}
}

// seen is a number or range of requests, or those by step.
func (c *upstreamCheck) seen() {
	c.countBy("requests", c.x.Seen, func(one call) (string, bool) {
		if one.request == nil {
			return "", false
		}
		return one.request.step, true
	}, len(c.asked))
}

// countBy checks a number, a range, or an object of them by name.
func (c *upstreamCheck) countBy(what string, raw json.RawMessage, name func(call) (string, bool), all int) {
	if len(raw) == 0 {
		return
	}
	if string(raw) == "true" || string(raw) == "false" {
		if (all > 0) != (string(raw) == "true") {
			c.differ(what, string(raw), "%d", all)
		}
		return
	}
	var want Range
	if json.Unmarshal(raw, &want) == nil && want.Set() {
		if !want.Holds(float64(all)) {
			c.differ(what, want.String(), "%d", all)
		}
		return
	}
	var by map[string]Range
	if err := json.Unmarshal(raw, &by); err != nil {
		c.differ(what, "a number, a range or ranges by name", "%s", raw)
		return
	}
	for _, key := range sortedKeys(by) {
		n := 0
		for _, one := range c.asked {
			if got, ok := name(one); ok {
				if match, _ := path.Match(key, got); match || got == key {
					n++
				}
			}
		}
		if !by[key].Holds(float64(n)) {
			c.differ(what+" of "+key, by[key].String(), "%d", n)
		}
	}
}

// deliveryOf is the delivery that a call carried.
func deliveryOf(one call) string {
	if id := deliveryID(one.header.Get); id != "" {
		return id
	}
	if one.request != nil {
		return one.request.id
	}
	return ""
}

// repositoryOf reads the repository out of a delivery's body.
func repositoryOf(one call) string {
	if one.request == nil || one.request.wire == nil {
		return ""
	}
	var body struct {
		Repository struct {
			FullName string `json:"full_name"`
		} `json:"repository"`
	}
	if json.Unmarshal(one.request.wire.body, &body) != nil {
		return ""
	}
	return body.Repository.FullName
}

func (c *upstreamCheck) deliveries() {
	times := map[string]int{}
	for _, one := range c.asked {
		if id := deliveryOf(one); id != "" {
			times[id]++
		}
	}
	c.countBy("deliveries", c.x.Deliveries, func(one call) (string, bool) { return repositoryOf(one), true }, len(times))
	if limit := c.x.MaxDeliveriesEach; limit != nil {
		if len(times) == 0 {
			c.differ("deliveries", "some", "none")
		}
		for id, n := range times {
			if float64(n) > *limit {
				c.differ("attempts for one delivery", "at most "+number(*limit), "%d (%s)", n, id)
				break
			}
		}
	}
	for _, glob := range sortedKeys(c.x.Delivered) {
		c.delivered(glob, c.x.Delivered[glob])
	}
	if c.x.Every202 != nil {
		c.every202(times)
	}
}

// delivered counts different deliveries that arrived, within the time that is
// allowed since they were sent.
func (c *upstreamCheck) delivered(glob string, want Range) {
	ids, slowest := map[string]bool{}, time.Duration(0)
	for _, one := range c.asked {
		if match, _ := path.Match(glob, repositoryOf(one)); !match {
			continue
		}
		took := one.at.Sub(one.request.at)
		slowest = max(slowest, took)
		if c.x.WithinMS == nil || took <= c.v.w.runner.scaled(*c.x.WithinMS) {
			ids[deliveryOf(one)] = true
		}
	}
	if !want.Holds(float64(len(ids))) {
		c.differ("delivered "+glob, want.String(), "%d, slowest after %d ms", len(ids), slowest.Milliseconds())
	}
}

// every202 checks that what was accepted has arrived.
func (c *upstreamCheck) every202(times map[string]int) {
	accepted, missing := 0, 0
	for _, e := range c.v.w.book.all() {
		id := ""
		if e.wire != nil {
			id = e.wire.deliveryID()
		}
		if e.status != 202 || id == "" {
			continue
		}
		accepted++
		missing += one(times[id] == 0)
	}
	if accepted == 0 {
		c.differ("deliveries answered 202", "some", "none")
	}
	if (missing == 0) != *c.x.Every202 {
		c.differ("deliveries answered 202", "each delivered", "%d of %d missing", missing, accepted)
	}
}

// order checks that the deliveries of each repository arrived in the order of
// their sequence numbers, or that steps arrived in the order listed.
func (c *upstreamCheck) order() {
	if len(c.x.Order) == 0 {
		return
	}
	var steps []string
	if json.Unmarshal(c.x.Order, &steps) == nil {
		var got []string
		for _, one := range c.asked {
			if one.request != nil && slices.Contains(steps, one.request.step) && !slices.Contains(got, one.request.step) {
				got = append(got, one.request.step)
			}
		}
		if !slices.Equal(got, steps) {
			c.differ("order", strings.Join(steps, ", "), "%s", strings.Join(got, ", "))
		}
		return
	}
	last, seen := map[string]int{}, map[string]bool{}
	compared := 0
	for _, one := range c.asked {
		n, ok := sequenceOf(one)
		id := deliveryOf(one)
		if !ok || seen[id] {
			continue // a repeated attempt
		}
		seen[id] = true
		repo := repositoryOf(one)
		if before, known := last[repo]; known && n < before {
			c.differ("order of "+repo, fmt.Sprintf("ascending, after %d", before), "%d", n)
			return
		}
		last[repo] = n
		compared++
	}
	if compared == 0 {
		c.differ("order", "deliveries with a sequence number", "none")
	}
}

func sequenceOf(one call) (int, bool) {
	var body struct {
		Seq *int `json:"seq"`
	}
	if one.request == nil || one.request.wire == nil || json.Unmarshal(one.request.wire.body, &body) != nil || body.Seq == nil {
		return 0, false
	}
	return *body.Seq, true
}
