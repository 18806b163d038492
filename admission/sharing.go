package admission

import "fmt"

// sharing checks what the git classes do to each other: the reserves fit into
// the total, and no class on the path of a push can be left with nothing.
func (b *compiler) sharing() {
	p := b.p
	if p.Rest() < 0 {
		b.bad("total", p.Total, "at least the sum of the reserves, %d", p.Reserved())
		return
	}
	for _, c := range pushPath {
		if !p.starvable(c) {
			continue
		}
		report := b.bad
		if b.cfg.AllowStarvation {
			report = b.warn
		}
		report(fmt.Sprintf("class %s reserve", c), p.Classes[c].Reserve,
			"at least 1: a push passes discovery, candidate and push, and other classes could take all %d shared places (allow_starvation loads this all the same)",
			p.Rest())
	}
}

// starvable reports whether the other git classes together can take everything
// that c may use.
func (p *Policy) starvable(c Class) bool {
	if p.Classes[c].Reserve > 0 {
		return false
	}
	others := 0
	for o := Push; o.Git(); o++ {
		if o != c {
			others += p.Classes[o].Max - p.Classes[o].Reserve
		}
	}
	return others >= p.Rest()
}

// warnings reports what loads but deserves the operator's eye.
func (b *compiler) warnings() {
	if sum := b.p.capsTogether(); b.p.UpstreamWorkers > 0 && sum > b.p.UpstreamWorkers {
		b.warn("upstream_workers", b.p.UpstreamWorkers, "at least all caps together, %d", sum)
	}
	if bytes := b.p.Classes[Webhook].Bytes; bytes.On() && bytes.Burst < fullDelivery {
		b.warn("class webhook bytes burst", bytes.Burst,
			"%d or more, so that one delivery of the largest size is counted in full", fullDelivery)
	}
}

// capsTogether is the most requests the upstream can see at once: the total
// and every bounded pool outside it.
func (p *Policy) capsTogether() int {
	sum := p.Total
	for c := range NumClasses {
		if m := p.Classes[c].Max; !c.Git() && m != Unlimited {
			sum += m
		}
	}
	return sum
}

// Shares is the counted inventory of what a policy hands out.
type Shares struct {
	Total        int
	Reserved     int // sum of the git reserves
	Rest         int // what the git classes share beyond their reserves
	Outside      int // sum of the bounded pools outside the total
	CapsTogether int // Total + Outside
	// UpstreamWorkers is what the operator says the upstream takes; 0 = not said.
	UpstreamWorkers int
	Classes         []Share
}

// Share is what one class gets.
type Share struct {
	Class    string
	Reserve  int
	Shared   int // most it can take of the shared rest
	Max      int // Unlimited = no bound
	WaitSize int
}

// Shares counts what is reserved and shared, for printing at load.
func (p *Policy) Shares() Shares {
	s := Shares{
		Total: p.Total, Reserved: p.Reserved(), Rest: p.Rest(),
		CapsTogether: p.capsTogether(), UpstreamWorkers: p.UpstreamWorkers,
	}
	s.Outside = s.CapsTogether - s.Total
	for c := range NumClasses {
		cp := &p.Classes[c]
		sh := Share{Class: c.String(), Reserve: cp.Reserve, Max: cp.Max, WaitSize: cp.WaitSize}
		if c.Git() {
			sh.Shared = min(cp.Max-cp.Reserve, s.Rest)
		}
		s.Classes = append(s.Classes, sh)
	}
	return s
}

// Lines renders the inventory for people, one line a class and one for the sums.
func (s Shares) Lines() []string {
	var out []string
	for _, c := range s.Classes {
		switch cl, _ := ParseClass(c.Class); {
		case cl.Git():
			out = append(out, fmt.Sprintf("%s: %d reserved + up to %d of %d shared, max %d, %d may wait",
				c.Class, c.Reserve, c.Shared, s.Rest, c.Max, c.WaitSize))
		case c.Max == Unlimited:
			out = append(out, fmt.Sprintf("%s: not limited", c.Class))
		default:
			out = append(out, fmt.Sprintf("%s: own pool of %d, %d may wait", c.Class, c.Max, c.WaitSize))
		}
	}
	sum := fmt.Sprintf("git total %d = %d reserved + %d shared; own pools %d; together %d",
		s.Total, s.Reserved, s.Rest, s.Outside, s.CapsTogether)
	if s.UpstreamWorkers > 0 {
		sum += fmt.Sprintf(" against %d upstream workers", s.UpstreamWorkers)
	}
	return append(out, sum)
}
