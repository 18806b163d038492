package cases

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

func (c *responseCheck) streams() {
	for _, e := range c.list {
		c.first(e, "first event", c.x.FirstEventWithinMS, e.firstEvent)
		c.first(e, "first byte", c.x.FirstByteWithinMS, e.firstByte)
		for _, name := range sortedKeys(c.x.Trailers) {
			want, got := c.x.Trailers[name], e.trailer.Get(name)
			if got == "" && e.header.Get(name) == want {
				got = want // an answer without a body has its trailers in the header
			}
			if got != want {
				c.differ("trailer "+name, want, "%q (%s)", got, e.outcome())
				return
			}
		}
		for _, code := range c.x.Informational {
			if !slices.Contains(e.info, code) {
				c.differ("informational answer", fmt.Sprint(code), "%v", e.info)
			}
		}
	}
}

func (c *responseCheck) first(e *exchange, what string, limit *float64, at time.Time) {
	if limit == nil {
		return
	}
	if at.IsZero() || at.Sub(e.started) > c.v.w.runner.scaled(*limit) {
		seen := "none"
		if !at.IsZero() {
			seen = fmt.Sprintf("%d ms", at.Sub(e.started).Milliseconds())
		}
		c.differ(what, "within "+number(*limit)+" ms", "%s (%d)", seen, e.status)
	}
}

func (c *responseCheck) sockets() {
	upgraded, alive, echoed, refused := 0, 0, 0, 0
	for _, e := range c.list {
		upgraded += one(e.upgraded)
		alive += one(e.alive)
		echoed += one(e.echoed)
		refused += one(e.refused())
	}
	for _, x := range []struct {
		word string
		want *float64
		got  int
	}{{"upgraded", c.x.Upgraded, upgraded}, {"alive", c.x.Alive, alive}} {
		if x.want != nil && *x.want != float64(x.got) {
			c.differ(x.word, number(*x.want), "%d: %s", x.got, summary(c.list))
		}
	}
	if want := c.x.Echo; want != nil && *want != (echoed > 0 && echoed == upgraded) {
		c.differ("echo", fmt.Sprint(*want), "%d of %d", echoed, upgraded)
	}
	if !c.x.GatewayRefused.Holds(float64(refused)) {
		c.differ("gateway refused", c.x.GatewayRefused.String(), "%d: %s", refused, summary(c.list))
	}
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func (c *responseCheck) git() {
	for _, e := range c.list {
		if len(c.x.Exit) > 0 && !contains(c.x.Exit, e.exit) {
			c.differ("exit", joinInts(c.x.Exit), "%d: %s", e.exit, clip([]byte(e.stderr)))
		}
		for _, part := range c.x.StderrContains {
			if !strings.Contains(e.stderr, part) {
				c.differ("stderr", fmt.Sprintf("%q inside", part), "%q", clip([]byte(e.stderr)))
			}
		}
		for _, part := range c.x.StderrNotContains {
			if strings.Contains(e.stderr, part) {
				c.differ("stderr", fmt.Sprintf("%q not inside", part), "%q", clip([]byte(e.stderr)))
			}
		}
	}
}
