package admission

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Problem is one mistake, or one warning, in a configuration. It is an error,
// so problems can be joined.
type Problem struct {
	Path    string // where, as the operator writes it: "class push reserve"
	Found   string
	Allowed string
	Warning bool // the configuration loads all the same
}

// Error puts the parts on one line.
func (p Problem) Error() string {
	return fmt.Sprintf("%s: found %s; allowed: %s", p.Path, p.Found, p.Allowed)
}

// Compile resolves the defaults and checks everything. It reports all problems
// at once, ordered by path; the policy is nil when any of them is not a warning.
// The same Config always gives the same result.
//
// Reserves and maxima that are not written scale with the total: floor(T*n/128),
// at least 1 except for anonymous' reserve, and no max below its reserve. A
// written max above the total is clipped to it with a warning.
func (c Config) Compile() (*Policy, []Problem) {
	b := &compiler{cfg: c, p: &Policy{Classes: defaults}}
	b.general()
	b.classes()
	b.sharing()
	b.warnings()
	slices.SortStableFunc(b.problems, func(a, b Problem) int { return cmp.Compare(a.Path, b.Path) })
	for _, p := range b.problems {
		if !p.Warning {
			return nil, b.problems
		}
	}
	return b.p, b.problems
}

type compiler struct {
	cfg      Config
	p        *Policy
	problems []Problem
}

func (b *compiler) bad(path string, found any, allowed string, args ...any) {
	b.problems = append(b.problems, Problem{Path: path, Found: fmt.Sprint(found), Allowed: fmt.Sprintf(allowed, args...)})
}

func (b *compiler) warn(path string, found any, allowed string, args ...any) {
	b.bad(path, found, allowed, args...)
	b.problems[len(b.problems)-1].Warning = true
}

// within returns v when it lies in [lo, hi], else records a problem and
// returns fallback.
func (b *compiler) within(path string, v, lo, hi, fallback int) int {
	if v < lo || v > hi {
		b.bad(path, v, "%d to %d", lo, hi)
		return fallback
	}
	return v
}

func (b *compiler) general() {
	c, p := &b.cfg, b.p
	p.Total, p.CallersMax = defaultTotal, defaultCallersMax
	if c.Total != 0 {
		p.Total = b.within("total", c.Total, 1, maxTotal, defaultTotal)
	}
	if c.CallersMax != 0 {
		p.CallersMax = b.within("callers_max", c.CallersMax, 1, maxCallers, defaultCallersMax)
	}
	p.UpstreamWorkers = b.within("upstream_workers", c.UpstreamWorkers, 0, math.MaxInt32, 0)
}

func (b *compiler) classes() {
	for name := range b.cfg.Classes {
		if _, ok := ParseClass(name); !ok {
			b.bad("class "+printable(name), "an unknown class", "%s", classNames)
		}
	}
	for c := range NumClasses {
		cc := b.cfg.Classes[c.String()]
		if cc == nil {
			cc = &ClassConfig{}
		}
		b.places(c, cc)
		b.callerCaps(c, cc)
		b.wait(c, cc)
		b.buckets(c, cc)
		b.p.Classes[c].DryRun = cc.DryRun || b.cfg.DryRun
	}
}

func printable(name string) string {
	if len(name) > 40 {
		name = name[:40]
	}
	return fmt.Sprintf("%q", name)
}

// places resolves reserve and max.
func (b *compiler) places(c Class, cc *ClassConfig) {
	path, cp := "class "+c.String(), &b.p.Classes[c]
	if !c.Git() {
		if cc.Reserve != nil && *cc.Reserve != 0 {
			b.bad(path+" reserve", *cc.Reserve, "no reserve: the class has a pool of its own")
		}
		if cc.Max != nil {
			lo, hi := 0, maxTotal
			if c == Webhook {
				lo, hi = webhookMin, webhookMax
			}
			cp.Max = b.within(path+" max", *cc.Max, lo, hi, cp.Max)
		}
		return
	}
	total := b.p.Total
	cp.Reserve, cp.Max = scaled(total, cp.Reserve), scaled(total, cp.Max)
	if cc.Max != nil {
		cp.Max = b.writtenMax(c, path+" max", *cc.Max)
		cp.Reserve = min(cp.Reserve, cp.Max)
	}
	switch {
	case cc.Reserve != nil:
		cp.Reserve = b.within(path+" reserve", *cc.Reserve, 0, total, cp.Reserve)
		if cc.Max == nil {
			cp.Max = max(cp.Max, cp.Reserve)
		} else if cp.Max < cp.Reserve {
			b.bad(path+" max", *cc.Max, "at least the class's reserve of %d", cp.Reserve)
		}
	case total < minScaledTotal && cp.Reserve > 0:
		b.bad(path+" reserve", "nothing", "a written reserve, because the total %d is below %d", total, minScaledTotal)
	}
	cp.Max = max(cp.Max, cp.Reserve)
}

func (b *compiler) writtenMax(c Class, path string, v int) int {
	lo := 0
	if slices.Contains(pushPath[:], c) {
		lo = 1
	}
	if v < lo || v > maxTotal {
		b.bad(path, v, "%d to the total of %d", lo, b.p.Total)
		return lo
	}
	if v > b.p.Total {
		b.warn(path, v, "up to the total; %d is used", b.p.Total)
		return b.p.Total
	}
	return v
}

func (b *compiler) callerCaps(c Class, cc *ClassConfig) {
	path, cp := "class "+c.String(), &b.p.Classes[c]
	set := func(scope Scope, path string, v *int) {
		if v != nil {
			cp.CallerMax[scope] = b.within(path, *v, 0, maxTotal, cp.CallerMax[scope])
		}
	}
	if c.hasProof() {
		set(ByCredential, path+" caller_max", cc.CallerMax)
		set(ByAddress, path+" caller_max (address)", cc.AddressMax)
	} else {
		set(ByAddress, path+" caller_max", cc.CallerMax)
		if cc.AddressMax != nil {
			b.bad(path+" caller_max (address)", *cc.AddressMax, "one number: the class carries no proof")
		}
	}
	set(ByRepository, path+" repo_max", cc.RepoMax)
	if !c.Git() && (cc.Clones != nil || cc.RepoClones != nil) {
		b.bad(path+" clones", "a cap on clones", "none: only the git classes run clones")
	} else {
		set(ByDear, path+" clones", cc.Clones)
		set(ByDearRepository, path+" clones (repository)", cc.RepoClones)
	}
	if n := len(cc.CustomMax); n > len(cp.CustomBy) {
		b.bad(path+" caller_max … by", n, "at most %d placeholders", len(cp.CustomBy))
	}
	for i, m := range cc.CustomMax[:min(len(cc.CustomMax), len(cp.CustomBy))] {
		if m.By == "" {
			b.bad(path+" caller_max … by", "nothing", "a placeholder such as {http.auth.user.id}")
		}
		cp.CallerMax[ByCustom0+Scope(i)] = b.within(path+" caller_max … by", m.Max, 1, maxTotal, 1)
		cp.CustomBy[i] = m.By
	}
}

func (b *compiler) wait(c Class, cc *ClassConfig) {
	path, cp := "class "+c.String(), &b.p.Classes[c]
	if d := cc.Deadline; d != nil {
		if *d < 0 || time.Duration(*d) > maxDeadline {
			b.bad(path+" deadline", time.Duration(*d), "0 (none) to %v", maxDeadline)
		} else {
			cp.Deadline = time.Duration(*d)
		}
	}
	b.slow(c, cc)
	if cc.Wait == nil {
		if b.cfg.WaitOff {
			cp.WaitSize, cp.WaitMax = 0, 0
		}
		return
	}
	hi := maxWaitSize
	if c == Webhook {
		hi = 0
	}
	cp.WaitSize = b.within(path+" wait size", cc.Wait.Size, 0, hi, 0)
	if w := time.Duration(cc.Wait.Max); cp.WaitSize == 0 {
		cp.WaitMax = 0
	} else if w <= 0 || w > maxWaitTime {
		b.bad(path+" wait time", w, "more than 0 and at most %v", maxWaitTime)
	} else {
		cp.WaitMax = w
	}
}

// slow resolves what is expected of clients.
func (b *compiler) slow(c Class, cc *ClassConfig) {
	path, to := "class "+c.String(), &b.p.Classes[c].Slow
	set := func(path string, to *time.Duration, v *Duration, least time.Duration) {
		switch d := time.Duration(deref(v)); {
		case v == nil:
		case d < least || d > maxDeadline:
			b.bad(path, d, "%v to %v", least, maxDeadline)
		default:
			*to = d
		}
	}
	set(path+" stall", &to.Stall, cc.Stall, 0)
	set(path+" body_idle", &to.BodyIdle, cc.BodyIdle, time.Millisecond)
	if v := cc.MinRate; v != nil {
		if *v < 0 || *v > maxBurst {
			b.bad(path+" min_rate", *v, "0 (none) to %d bytes per second", int64(maxBurst))
		} else {
			to.MinRate = *v
		}
	}
}

func deref(d *Duration) Duration {
	if d == nil {
		return 0
	}
	return *d
}

func (b *compiler) buckets(c Class, cc *ClassConfig) {
	path, cp := "class "+c.String(), &b.p.Classes[c]
	set := func(to *BucketPolicy, path string, v *BucketConfig, perSecond float64) bool {
		if v == nil {
			return false
		}
		ok := true
		if v.Burst < 1 || v.Burst > maxBurst {
			b.bad(path+" burst", v.Burst, "1 to %d", int64(maxBurst))
			ok = false
		}
		if !(v.PerSecond > 0 && v.PerSecond <= perSecond) {
			b.bad(path+" rate", v.PerSecond, "more than 0 and at most %g per second", perSecond)
			ok = false
		}
		if ok {
			*to = BucketPolicy(*v)
		}
		return ok
	}
	set(&cp.Bucket, path+" bucket", cc.Bucket, maxPerSecond)
	set(&cp.Bytes, path+" bytes", cc.Bytes, maxPerSecond)
	if set(&cp.CallerBucket, path+" caller_bucket", cc.CallerBucket, maxCallerRate) {
		if refill := float64(cp.CallerBucket.Burst) / cp.CallerBucket.PerSecond; refill > maxRefill.Seconds() {
			b.bad(path+" caller_bucket", fmt.Sprintf("a refill of %.0f s", refill),
				"a bucket that is full again within %.0f s", maxRefill.Seconds())
			cp.CallerBucket = BucketPolicy{}
		}
	}
}
