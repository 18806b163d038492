package caddymodule

import (
	"strconv"
	"strings"

	"github.com/caddy-admission/gateway/admission"
)

// maxNumber bounds what is read as a whole number; the engine knows the real
// bound of each setting.
const maxNumber = 1<<31 - 1

// pool reads the directive's block. opened is false when there is none.
func (r *reader) pool() (p *Pool, opened bool) {
	p = &Pool{}
	before := len(r.mistakes)
	r.block("", with(with(ingressWords(p), recognitionWords(p)), map[string]word{
		"total":            {read: func(l *line) { l.count(&p.Total, 1, maxNumber) }},
		"wait":             {read: func(l *line) { l.onOff(&p.WaitOff) }},
		"caller":           {read: func(l *line) { p.Caller = l.caller() }},
		"forge":            {read: func(l *line) { l.one(&p.Forge, oneOf(profiles)) }},
		"class":            {read: func(l *line) { l.class(p) }, repeat: true},
		"allow_starvation": {read: func(l *line) { l.flag(&p.AllowStarvation) }},
		"upstream_workers": {read: func(l *line) { l.count(&p.UpstreamWorkers, 1, maxNumber) }},
		"callers_max":      {read: func(l *line) { l.count(&p.CallersMax, 1, maxNumber) }},
		"refuse_status":    {read: func(l *line) { l.refuseStatus(p) }, repeat: true},
		"dry_run":          {read: func(l *line) { l.flag(&p.DryRun) }},
		"log_callers":      {read: func(l *line) { l.flag(&p.LogCallers) }},
	}))
	return p, len(r.where) > 1 || len(r.mistakes) > before
}

// onOff reads "on" or "off" into a field that says off.
func (l *line) onOff(off *bool) {
	switch {
	case !l.want(1, 1, "on or off"):
	case l.args[0] == "off":
		*off = true
	case l.args[0] != "on":
		l.wrong("on or off")
	}
}

func (l *line) caller() *Caller {
	const allowed = "<placeholder> [<IPv4 bits> [<IPv6 bits>]], for instance {client_ip} 32 64"
	if !l.want(1, 3, allowed) {
		return nil
	}
	c := &Caller{Key: l.args[0]}
	for i, to := range []*int{&c.IPv4Bits, &c.IPv6Bits} {
		if len(l.args) < i+2 {
			break
		}
		n, err := strconv.Atoi(l.args[i+1])
		if err != nil || n < 1 {
			l.wrong(allowed)
			return nil
		}
		*to = n
	}
	return c
}

func (l *line) refuseStatus(p *Pool) {
	if !l.want(2, 2, "<class> 429|503") {
		return
	}
	status, err := strconv.Atoi(l.args[1])
	if err != nil {
		l.wrong("<class> 429|503")
		return
	}
	if p.RefuseStatus == nil {
		p.RefuseStatus = map[string]int{}
	}
	l.where[join(l.path, l.args[0])] = l.at
	p.RefuseStatus[l.args[0]] = status
}

// class reads
//
//	class <class> {
//	    reserve      <n>
//	    max          <n>
//	    caller_max   <n> [<m>]
//	    caller_max   <n> by <placeholder>
//	    repo_max     <n>
//	    wait         <n> <duration> | off
//	    deadline     <duration> | none
//	    stall        <duration> | none
//	    body_idle    <duration>
//	    min_rate     <size>
//	    bucket       <burst> <n>/s
//	    bytes        <size> <size>/s
//	    caller_bucket <burst> <n>/s
//	    clones       <n> [<m>]
//	    path         <path…>
//	    dry_run
//	}
func (l *line) class(p *Pool) {
	if !l.want(1, 1, "one class: "+classNames()) {
		return
	}
	name := l.args[0]
	l.path = join("class", name)
	if first, twice := l.where[l.path]; twice {
		l.add(l.at, problemf(l.path, "one block per class", "a second block (the first is at %s)", first))
		return
	}
	l.where[l.path] = l.at
	l.where[join("class", strconv.Quote(name))] = l.at // how the engine spells an unknown one
	c := &admission.ClassConfig{}
	if p.Classes == nil {
		p.Classes = map[string]*admission.ClassConfig{}
	}
	p.Classes[name] = c // the engine reports an unknown class
	l.block(l.path, map[string]word{
		"reserve":       {read: func(l *line) { l.optionalCount(&c.Reserve, 0, maxNumber) }},
		"max":           {read: func(l *line) { l.optionalCount(&c.Max, 0, maxNumber) }},
		"caller_max":    {read: func(l *line) { l.callerMax(c) }, repeat: true},
		"repo_max":      {read: func(l *line) { l.optionalCount(&c.RepoMax, 1, maxNumber) }},
		"wait":          {read: func(l *line) { l.wait(c) }},
		"deadline":      {read: func(l *line) { l.durationOrNone(&c.Deadline, true) }},
		"stall":         {read: func(l *line) { l.durationOrNone(&c.Stall, true) }},
		"body_idle":     {read: func(l *line) { l.durationOrNone(&c.BodyIdle, false) }},
		"min_rate":      {read: func(l *line) { l.rate(&c.MinRate) }},
		"path":          {read: func(l *line) { l.classPaths(p, name) }, repeat: true},
		"bucket":        {read: func(l *line) { l.bucket(&c.Bucket, false) }},
		"bytes":         {read: func(l *line) { l.bucket(&c.Bytes, true) }},
		"caller_bucket": {read: func(l *line) { l.bucket(&c.CallerBucket, false) }},
		"clones":        {read: func(l *line) { l.clones(c) }},
		"dry_run":       {read: func(l *line) { l.flag(&c.DryRun) }},
	})
}

func (l *line) callerMax(c *admission.ClassConfig) {
	const allowed = "<n> [<m>] once, or <n> by <placeholder>"
	if len(l.args) == 3 && l.args[1] == "by" {
		n, ok := parseCount(l.args[0], 1, maxNumber)
		if !ok {
			l.wrong(allowed)
			return
		}
		c.CustomMax = append(c.CustomMax, admission.CustomMax{Max: n, By: l.args[2]})
		return
	}
	if !l.want(1, 2, allowed) {
		return
	}
	if c.CallerMax != nil {
		l.wrong(allowed)
		return
	}
	for i, to := range []**int{&c.CallerMax, &c.AddressMax} {
		if i >= len(l.args) {
			break
		}
		n, ok := parseCount(l.args[i], 1, maxNumber)
		if !ok {
			l.wrong(allowed)
			return
		}
		*to = &n
	}
}

func (l *line) wait(c *admission.ClassConfig) {
	const allowed = "<n> <duration>, for instance 256 60s, or off"
	if len(l.args) == 1 && l.args[0] == "off" {
		c.Wait = &admission.WaitConfig{}
		return
	}
	if !l.want(2, 2, allowed) {
		return
	}
	n, ok1 := parseCount(l.args[0], 1, maxNumber)
	d, ok2 := parseDuration(l.args[1])
	if !ok1 || !ok2 || d == 0 {
		l.wrong(allowed)
		return
	}
	c.Wait = &admission.WaitConfig{Size: n, Max: admission.Duration(d)}
}

// durationOrNone reads a duration; none, where it may be written, is zero.
func (l *line) durationOrNone(to **admission.Duration, none bool) {
	allowed := "a duration, for instance 10s or 2h"
	if none {
		allowed += ", or none"
	}
	if !l.want(1, 1, allowed) {
		return
	}
	d, ok := parseDuration(l.args[0])
	isNone := none && l.args[0] == "none"
	if !isNone && (!ok || d == 0) {
		l.wrong(allowed)
		return
	}
	out := admission.Duration(d)
	*to = &out
}

// rate reads bytes per second, with or without a unit.
func (l *line) rate(to **int64) {
	const allowed = "bytes per second, for instance 1024 or 32KiB"
	if !l.want(1, 1, allowed) {
		return
	}
	n, ok := parseAmount(strings.TrimSuffix(l.args[0], "/s"), true)
	if !ok || n != float64(int64(n)) {
		l.wrong(allowed)
		return
	}
	out := int64(n)
	*to = &out
}

// classPaths puts paths into the class, as classify would.
func (l *line) classPaths(p *Pool, class string) {
	const allowed = "<path…>, for instance /proto.Woodpecker/*"
	if !l.want(1, maxNumber, allowed) {
		return
	}
	for _, path := range l.args {
		if !strings.HasPrefix(path, "/") {
			l.wrong(allowed)
			return
		}
		l.rule(p, class, path, allowed)
	}
}

// clones reads the cap of the class and of one repository.
func (l *line) clones(c *admission.ClassConfig) {
	const allowed = "<n> for the class and, if need be, <m> for one repository"
	if !l.want(1, 2, allowed) {
		return
	}
	for i, to := range []**int{&c.Clones, &c.RepoClones}[:len(l.args)] {
		n, ok := parseCount(l.args[i], 1, maxNumber)
		if !ok {
			l.wrong(allowed)
			return
		}
		*to = &n
	}
}
