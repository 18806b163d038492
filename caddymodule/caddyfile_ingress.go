package caddymodule

import (
	"maps"

	"github.com/caddy-admission/gateway/admission"
)

// ingressWords are the settings of webhook, logout and login paths and of the
// spool:
//
//	webhooks {
//	    permits  <n>
//	    requests <burst> <n>/s
//	    bytes    <size> <size>/s
//	    senders  <network…>
//	}
//	webhook <path> {
//	    profile     <profile>
//	    header      <name> [<prefix>]
//	    algorithm   sha1|sha256|sha512|token
//	    secret_file <file…>
//	    max_body    <size>
//	    deadline    <duration>
//	    senders     <network…>
//	    bucket      <burst> <n>/s
//	    bytes       <size> <size>/s
//	    keep        off|overflow|always
//	    deliver     <URL> [{ … }]
//	}
//	logout <path>[?<name>=<value>] {
//	    issuer <URL> {
//	        jwks    <URL>
//	        clients <audience…>
//	    }
//	    algorithms <algorithm…>
//	    forged     <burst> <n>/s
//	}
//	login_start    <path…>
//	login_callback <path…>
//	spool <directory> [{ … }]
//
// caddyfile_spool.go has the blocks of deliver and spool.
func ingressWords(p *Pool) map[string]word {
	return map[string]word{
		"webhooks":       {read: func(l *line) { l.webhooks(p) }},
		"webhook":        {read: func(l *line) { l.webhook(p) }, repeat: true},
		"logout":         {read: func(l *line) { l.logout(p) }, repeat: true},
		"login_start":    {read: func(l *line) { l.paths(&p.LoginStart) }, repeat: true},
		"login_callback": {read: func(l *line) { l.paths(&p.LoginCallback) }, repeat: true},
		"spool":          {read: func(l *line) { l.spool(p) }},
	}
}

// with returns both sets of settings.
func with(a, b map[string]word) map[string]word {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

func (l *line) webhooks(p *Pool) {
	w := &Webhooks{}
	p.Webhooks = w
	if !l.want(0, 0, "a block without arguments") {
		return
	}
	l.block(l.path, map[string]word{
		"permits":  {read: func(l *line) { l.optionalCount(&w.Permits, 2, 8) }},
		"requests": {read: func(l *line) { l.bucket(&w.Requests, false) }},
		"bytes":    {read: func(l *line) { l.bucket(&w.Bytes, true) }},
		"senders":  {read: func(l *line) { l.list(&w.Senders, networksText) }, repeat: true},
	})
}

// named starts a block that is named by its path.
func (l *line) named(allowed string) (name string, ok bool) {
	if !l.want(1, 1, allowed) {
		return "", false
	}
	l.path = join(l.path, l.args[0])
	if _, twice := l.where[l.path]; !twice {
		l.where[l.path] = l.at
	}
	return l.args[0], true
}

func (l *line) webhook(p *Pool) {
	path, ok := l.named("one path, for instance /hooks/ci")
	if !ok {
		return
	}
	h := &Hook{Path: path}
	p.Hooks = append(p.Hooks, h)
	l.block(l.path, map[string]word{
		"profile": {read: func(l *line) { l.one(&h.Profile, "one profile") }},
		"header": {read: func(l *line) {
			if l.want(1, 2, "<name> [<prefix>]") {
				h.Header = l.args[0]
				if len(l.args) == 2 {
					h.Prefix = l.args[1]
				}
			}
		}},
		"algorithm":   {read: func(l *line) { l.one(&h.Algorithm, "sha1, sha256, sha512 or token") }},
		"secret_file": {read: func(l *line) { l.list(&h.SecretFiles, "one or more files") }, repeat: true},
		"senders":     {read: func(l *line) { l.list(&h.Senders, networksText) }, repeat: true},
		"max_body":    {read: func(l *line) { l.size(&h.MaxBody) }},
		"deadline":    {read: func(l *line) { l.span(&h.Deadline) }},
		"bucket":      {read: func(l *line) { l.bucket(&h.Bucket, false) }},
		"bytes":       {read: func(l *line) { l.bucket(&h.Bytes, true) }},
		"keep":        {read: func(l *line) { l.one(&h.Keep, "off, overflow or always") }},
		"deliver":     {read: func(l *line) { l.deliver(h) }},
	})
}

func (l *line) logout(p *Pool) {
	path, ok := l.named("one path, for instance /oidc/backchannel-logout")
	if !ok {
		return
	}
	out := &Logout{Path: path}
	p.Logouts = append(p.Logouts, out)
	l.block(l.path, map[string]word{
		"issuer":     {read: func(l *line) { l.issuer(out) }, repeat: true},
		"algorithms": {read: func(l *line) { l.list(&out.Algorithms, "signature algorithms, for instance RS256") }},
		"forged":     {read: func(l *line) { l.bucket(&out.Forged, false) }},
	})
}

func (l *line) issuer(out *Logout) {
	issuerURL, ok := l.named("one http or https URL")
	if !ok {
		return
	}
	is := &Issuer{URL: issuerURL}
	out.Issuers = append(out.Issuers, is)
	l.block(l.path, map[string]word{
		"jwks":    {read: func(l *line) { l.one(&is.JWKS, "one http or https URL") }},
		"clients": {read: func(l *line) { l.list(&is.Clients, "one or more audiences") }},
	})
}

// size reads one size of at least a byte.
func (l *line) size(to *int64) {
	const allowed = "a size, for instance 2GiB"
	if !l.want(1, 1, allowed) {
		return
	}
	n, ok := parseAmount(l.args[0], true)
	if !ok || n < 1 || n != float64(int64(n)) {
		l.wrong(allowed)
		return
	}
	*to = int64(n)
}

// span reads one duration above zero.
func (l *line) span(to *admission.Duration) {
	const allowed = "a duration, for instance 72h"
	if !l.want(1, 1, allowed) {
		return
	}
	d, ok := parseDuration(l.args[0])
	if !ok || d == 0 {
		l.wrong(allowed)
		return
	}
	*to = admission.Duration(d)
}

const networksText = "networks, for instance 192.0.2.0/24"

func (l *line) paths(to *[]string) { l.list(to, "one or more paths; * stands for any characters") }

func (l *line) list(to *[]string, allowed string) {
	if l.want(1, 1000, allowed) {
		*to = append(*to, l.args...)
	}
}

// one reads a single word; compile checks its value.
func (l *line) one(to *string, allowed string) {
	if l.want(1, 1, allowed) {
		*to = l.args[0]
	}
}
