package caddymodule

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

// recognitionWords are the settings that say who is known and what goes where:
//
//	trusted_networks   <network…>
//	trust_certificates
//	shared_networks    <n> <network…>
//	verify             on|off
//	session_cookie     <name>
//	identity_headers   keep | <name…>
//	classify           <class> <matcher>
//	exempt             <matcher>
//
// A matcher is @name, a path, or *.
func recognitionWords(p *Pool) map[string]word {
	return map[string]word{
		"trusted_networks":   {read: func(l *line) { l.list(&p.TrustedNetworks, "networks, for instance 10.1.0.0/16") }, repeat: true},
		"trust_certificates": {read: func(l *line) { l.flag(&p.TrustCertificates) }},
		"shared_networks":    {read: func(l *line) { l.shared(p) }},
		"verify":             {read: func(l *line) { l.onOff(&p.VerifyOff) }},
		"session_cookie":     {read: func(l *line) { l.any(&p.SessionCookie, "the name of a cookie") }},
		"identity_headers":   {read: func(l *line) { l.identityHeaders(p) }, repeat: true},
		"classify":           {read: func(l *line) { l.classify(p) }, repeat: true},
		"exempt":             {read: func(l *line) { l.exempt(p) }, repeat: true},
	}
}

func (l *line) any(to *string, allowed string) {
	if l.want(1, 1, allowed) {
		*to = l.args[0]
	}
}

func (l *line) shared(p *Pool) {
	const allowed = "<n> <network…>, for instance 64 203.0.113.7/32"
	if !l.want(2, maxNumber, allowed) {
		return
	}
	n, ok := parseCount(l.args[0], 1, maxNumber)
	if !ok {
		l.wrong(allowed)
		return
	}
	p.SharedMax, p.SharedNetworks = n, l.args[1:]
}

func (l *line) identityHeaders(p *Pool) {
	if !l.want(1, maxNumber, "keep, or names of header fields to take away") {
		return
	}
	if len(l.args) == 1 && l.args[0] == "keep" {
		p.KeepIdentityHeaders = true
		return
	}
	p.IdentityHeaders = append(p.IdentityHeaders, l.args...)
}

func (l *line) classify(p *Pool) {
	const allowed = "<class> <matcher>, for instance web /dear/*"
	if l.want(2, 2, allowed) {
		l.rule(p, l.args[0], l.args[1], allowed)
	}
}

func (l *line) exempt(p *Pool) {
	const allowed = "<matcher>, for instance /healthz"
	if l.want(1, 1, allowed) {
		l.rule(p, exemptRule, l.args[0], allowed)
	}
}

func (l *line) rule(p *Pool, class, token, allowed string) {
	match, ok, err := l.matcher(token)
	switch {
	case err != nil:
		l.add(l.at, problemf(l.path, "a matcher of this site", "%s: %v", token, err))
		return
	case !ok:
		l.wrong(allowed)
		return
	}
	path := join("classify", class)
	if class == exemptRule {
		path = exemptRule
	}
	l.where[path] = l.at
	p.Rules = append(p.Rules, &Rule{Class: class, Match: match})
}

// matcherFrom reads a matcher token with the matchers of the site.
func matcherFrom(h httpcaddyfile.Helper) func(string) (caddy.ModuleMap, bool, error) {
	return func(token string) (caddy.ModuleMap, bool, error) {
		d := caddyfile.NewDispenser([]caddyfile.Token{{File: h.File(), Line: h.Line(), Text: token}})
		return h.WithDispenser(d).MatcherToken()
	}
}
