package caddymodule

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/gate"
)

// Recognition says who is known beside proof by asking, and which requests go
// into another class. The zero value is what the forge's preset says, or
// nothing without one. A user that a handler in front has authenticated
// ({http.auth.user.id}) always counts as proven.
type Recognition struct {
	// TrustedNetworks are networks whose requests count as proven. Needs
	// addresses that clients cannot choose. Default: none.
	TrustedNetworks []string `json:"trusted_networks,omitempty"`
	// TrustCertificates lets a client certificate that Caddy has verified
	// count as a proof. Not behind a proxy that presents one certificate for
	// everybody. Default: false.
	TrustCertificates bool `json:"trust_certificates,omitempty"`

	// SharedNetworks are networks in which one address stands for many
	// callers, such as an office behind NAT: it may hold SharedMax permits of
	// a class in place of the class's caller_max. Default: none.
	SharedNetworks []string `json:"shared_networks,omitempty"`
	// SharedMax is the cap of such an address, in every class that caps
	// addresses. Required beside SharedNetworks.
	SharedMax int `json:"shared_max,omitempty"`

	// VerifyOff never asks the forge who a credential or session belongs to.
	// Default: false, so a forge is asked.
	VerifyOff bool `json:"verify_off,omitempty"`
	// SessionCookie is the name of the forge's session cookie. Default: the
	// preset's.
	SessionCookie string `json:"session_cookie,omitempty"`

	// KeepIdentityHeaders lets X-WEBAUTH-USER and the like pass from clients
	// in spite of a forge's preset. Default: false.
	KeepIdentityHeaders bool `json:"keep_identity_headers,omitempty"`
	// IdentityHeaders are more header fields to take away from clients.
	// Default: none.
	IdentityHeaders []string `json:"identity_headers,omitempty"`

	// Rules move requests into a class or exempt them; the first that matches
	// counts. Default: none.
	Rules []*Rule `json:"rules,omitempty"`
}

// Rule puts the requests of a matcher into a class.
type Rule struct {
	// Class is anonymous, lfs, web, stream or other, or "exempt": nothing
	// limits the request.
	Class string `json:"class"`
	// Match is the matcher; without one every request matches.
	Match caddy.ModuleMap `json:"match,omitempty" caddy:"namespace=http.matchers"`
}

// exemptRule is the class of a rule that exempts.
const exemptRule = "exempt"

// loadedRule is a Rule whose matcher is ready.
type loadedRule struct {
	rule  gate.Rule
	match caddyhttp.MatcherSet
}

// checkRecognition checks the settings and puts the caps of shared networks
// into the policy, when there is one.
func (p *Pool) checkRecognition(def *definition) (problems []admission.Problem) {
	problems = append(problems, checkNetworks("trusted_networks", p.TrustedNetworks)...)
	if len(p.TrustedNetworks) > 0 && p.Caller != nil && p.Caller.Key != "" && p.Caller.Key != clientIPPlaceholder && p.Caller.Key != "{client_ip}" {
		problems = append(problems, problemf("trusted_networks", "callers keyed by {client_ip}, which a client cannot choose", "caller %s", p.Caller.Key))
	}
	problems = append(problems, p.checkShared(def)...)
	if p.SessionCookie != "" && !isToken(p.SessionCookie) {
		problems = append(problems, problemf("session_cookie", "the name of a cookie", "%q", p.SessionCookie))
	}
	for _, name := range p.IdentityHeaders {
		if !isToken(name) {
			problems = append(problems, problemf("identity_headers", "names of header fields", "%q", name))
		}
	}
	if p.Forge == "" {
		for _, s := range []struct {
			path string
			set  bool
		}{{"verify", p.VerifyOff}, {"session_cookie", p.SessionCookie != ""}, {"identity_headers", p.KeepIdentityHeaders}} {
			if s.set {
				problems = append(problems, problemf(s.path, "this setting beside forge <name>", "no forge"))
			}
		}
	}
	for _, r := range p.Rules {
		problems = append(problems, r.check()...)
	}
	return problems
}

func (p *Pool) checkShared(def *definition) (problems []admission.Problem) {
	problems = checkNetworks("shared_networks", p.SharedNetworks)
	switch {
	case len(p.SharedNetworks) == 0 && p.SharedMax == 0:
		return nil
	case len(p.SharedNetworks) == 0:
		return append(problems, problemf("shared_networks", "<n> <network…>", "no network"))
	case p.SharedMax < 1 || p.SharedMax > maxNumber:
		return append(problems, problemf("shared_networks", "how many permits one address may hold, at least 1", "%d", p.SharedMax))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Classes)) {
		if c := p.Classes[name]; c != nil && len(c.CustomMax) > 3 {
			problems = append(problems, problemf("class "+name+" caller_max", "at most three placeholders beside shared_networks", "%d", len(c.CustomMax)))
		}
	}
	if def.policy == nil || len(problems) > 0 {
		return problems
	}
	for class := range admission.NumClasses {
		if c := &def.policy.Classes[class]; c.CallerMax[admission.ByAddress] > 0 {
			c.CallerMax[admission.ByCustom3] = p.SharedMax
		}
	}
	return nil
}

// check refuses a rule that would give a place away which only a proof opens,
// and warns where what the client sends exempts it.
func (r *Rule) check() (problems []admission.Problem) {
	path := join("classify", r.Class)
	const allowed = "anonymous, lfs, web, stream or other: a matcher knows what a request says, which is no proof"
	if r.Class == exemptRule {
		for _, name := range []string{"header", "header_regexp", "query", "expression", "vars", "vars_regexp"} {
			if _, ok := r.Match[name]; ok {
				problems = append(problems, admission.Problem{Path: exemptRule, Found: "matcher " + name,
					Allowed: "anything, but whoever sends what it matches has no limit at all", Warning: true})
			}
		}
		return problems
	}
	class, ok := admission.ParseClass(r.Class)
	switch {
	case !ok:
		return []admission.Problem{problemf(path, allowed, "class %q", r.Class)}
	case !gate.RuleClass(class):
		return []admission.Problem{problemf(path, allowed, "class %s, which a request enters by a proof or by its path only", class)}
	}
	return nil
}

func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("()<>@,;:\\\"/[]?={}", c) >= 0 {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

// loadRules makes the matchers ready. A copy is loaded, because loading
// empties what it loads from and definitions are compared.
func (a *App) loadRules(p *Pool) ([]loadedRule, error) {
	out := make([]loadedRule, 0, len(p.Rules))
	for i, r := range p.Rules {
		class, _ := admission.ParseClass(r.Class)
		l := loadedRule{rule: gate.Rule{Set: true, Exempt: r.Class == exemptRule, Class: class}}
		if len(r.Match) > 0 {
			raw := struct {
				Match caddy.ModuleMap `caddy:"namespace=http.matchers"`
			}{maps.Clone(r.Match)}
			modules, err := a.ctx.LoadModule(&raw, "Match")
			if err != nil {
				return nil, fmt.Errorf("rule %d: %w", i+1, err)
			}
			var sets caddyhttp.MatcherSets
			if err := sets.FromInterface([]map[string]any{modules.(map[string]any)}); err != nil {
				return nil, fmt.Errorf("rule %d: %w", i+1, err)
			}
			l.match = sets[0]
		}
		out = append(out, l)
	}
	return out, nil
}

// recognise adapts the settings to the gate.
func (d *definition) recognise(o *gate.Options) {
	p := d.pool
	o.People = gate.People{
		User:         func(r *http.Request) string { return placeholder(r, "{http.auth.user.id}") },
		Certificates: p.TrustCertificates,
		Trusted:      prefixes(p.TrustedNetworks),
		Shared:       prefixes(p.SharedNetworks),
		SharedMax:    p.SharedMax,
		VerifyOff:    p.VerifyOff,
		Cookie:       p.SessionCookie,
		KeepHeaders:  p.KeepIdentityHeaders,
		StripHeaders: p.IdentityHeaders,
	}
	o.StreamRefuses = p.Classes[admission.Stream.String()] != nil
	if len(d.rules) > 0 {
		o.Rule = d.rule
	}
}

// rule is what the first matching rule says. A matcher that fails matches
// nothing.
func (d *definition) rule(r *http.Request) gate.Rule {
	for i := range d.rules {
		l := &d.rules[i]
		if ok, err := l.match.MatchWithError(r); ok && err == nil {
			return l.rule
		}
	}
	return gate.Rule{}
}

// checkSpoofing refuses trusted networks behind a server whose clients choose
// their own address.
func (a *App) checkSpoofing() error {
	spoofed := a.layout().spoofed
	if len(spoofed) == 0 {
		return nil
	}
	for _, name := range a.names() {
		if len(a.definition(name).pool.TrustedNetworks) > 0 {
			return fmt.Errorf("admission %s: trusted_networks: found trusted_proxies without trusted_proxies_strict in server %s; allowed: trusted_proxies_strict, because clients choose their address otherwise",
				name, strings.Join(spoofed, ", "))
		}
	}
	return nil
}
