package caddymodule

import (
	"net/netip"
	"net/url"
	"strings"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/logout"
	"github.com/caddy-admission/gateway/admission/webhook"
)

// Webhooks is the budget that all hooks of a pool share.
type Webhooks struct {
	// Permits is how many deliveries are verified at once, 2 to 8. Default: 4.
	Permits *int `json:"permits,omitempty"`
	// Requests limits deliveries. Default: burst 200, 50 per second.
	Requests *admission.BucketConfig `json:"requests,omitempty"`
	// Bytes limits declared bytes. Default: burst 32 MiB, 8 MiB per second.
	Bytes *admission.BucketConfig `json:"bytes,omitempty"`
	// Senders are networks whose deliveries count as those of known senders.
	Senders []string `json:"senders,omitempty"`
}

// Hook is a path that takes deliveries of one kind of sender.
type Hook struct {
	Path string `json:"path"`
	// Profile names the kind of sender; generic is described by hand.
	Profile string `json:"profile"`
	// Header, Prefix and Algorithm describe the sender of profile generic.
	Header    string `json:"header,omitempty"`
	Prefix    string `json:"prefix,omitempty"`
	Algorithm string `json:"algorithm,omitempty"`
	// SecretFiles hold one secret each; any of them verifies. They are read
	// anew whenever the configuration is loaded.
	SecretFiles []string `json:"secret_files,omitempty"`
	// MaxBody lowers the profile's body cap, in bytes. Default: the profile's.
	MaxBody int64 `json:"max_body,omitempty"`
	// Deadline lowers the profile's deadline. Default: the profile's.
	Deadline admission.Duration `json:"deadline,omitempty"`
	// Senders are networks that count as known for this hook.
	Senders []string `json:"senders,omitempty"`
	// Bucket and Bytes limit this hook beside the budget of all hooks.
	Bucket *admission.BucketConfig `json:"bucket,omitempty"`
	Bytes  *admission.BucketConfig `json:"bytes,omitempty"`
	// Keep says when deliveries are written to the spool: off, overflow or
	// always. Default: overflow with Deliver, off without.
	Keep string `json:"keep,omitempty"`
	// Deliver is where verified deliveries go, by a client of the gateway's
	// own. Default: to the handlers behind, which rules keeping out.
	Deliver string `json:"deliver,omitempty"`
	// DeliverOptions says how they are delivered. Only with Deliver.
	DeliverOptions *DeliverOptions `json:"deliver_options,omitempty"`
}

// Logout is a path of back-channel logout.
type Logout struct {
	// Path may end in one query pair that tells a logout from other requests.
	Path string `json:"path"`
	// Issuers are the identity providers whose tokens are accepted. Default:
	// every issuer, by the shape of the token only.
	Issuers []*Issuer `json:"issuers,omitempty"`
	// Algorithms are the accepted signature algorithms. Default: all
	// asymmetric ones.
	Algorithms []string `json:"algorithms,omitempty"`
	// Forged limits tokens whose signature failed. Default: burst 64, 32 per
	// second.
	Forged *admission.BucketConfig `json:"forged,omitempty"`
}

// Issuer is an identity provider.
type Issuer struct {
	URL string `json:"url"`
	// JWKS is where its keys are. Default: found through the issuer.
	JWKS string `json:"jwks,omitempty"`
	// Clients are the accepted audiences. Default: every audience.
	Clients []string `json:"clients,omitempty"`
}

// webhookClass spreads the webhooks block over the engine's class.
func (p *Pool) webhookClass(c *admission.Config) (problems []admission.Problem) {
	w := p.Webhooks
	if w == nil {
		return nil
	}
	class := admission.ClassConfig{}
	if written := c.Classes[admission.Webhook.String()]; written != nil {
		class = *written
	}
	twice := func(path string, both bool) {
		if both {
			problems = append(problems, problemf("webhooks "+path, "one of webhooks and class webhook", "both"))
		}
	}
	if w.Permits != nil {
		twice("permits", class.Max != nil)
		class.Max = w.Permits
	}
	if w.Requests != nil {
		twice("requests", class.Bucket != nil)
		class.Bucket = w.Requests
	}
	if w.Bytes != nil {
		twice("bytes", class.Bytes != nil)
		class.Bytes = w.Bytes
	}
	classes := map[string]*admission.ClassConfig{admission.Webhook.String(): &class}
	for name, other := range c.Classes {
		if _, set := classes[name]; !set {
			classes[name] = other
		}
	}
	c.Classes = classes
	return append(problems, checkNetworks("webhooks senders", w.Senders)...)
}

func (p *Pool) checkIngress() (problems []admission.Problem) {
	for _, h := range p.Hooks {
		problems = append(problems, h.check()...)
	}
	for _, l := range p.Logouts {
		problems = append(problems, l.check()...)
	}
	for _, path := range p.LoginStart {
		problems = append(problems, checkPath("login_start", path, true)...)
	}
	for _, path := range p.LoginCallback {
		problems = append(problems, checkPath("login_callback", path, true)...)
	}
	problems = append(problems, p.checkSpool()...)
	return append(problems, p.checkPathsOnce()...)
}

func (h *Hook) check() (problems []admission.Problem) {
	at := "webhook " + h.Path
	problems = append(checkPath(at, h.Path, false), h.checkProfile(at)...)
	problems = append(problems, checkNetworks(at+" senders", h.Senders)...)
	problems = append(problems, h.checkKeep(at)...)
	if h.MaxBody < 0 || h.MaxBody > webhook.MaxBodyForm {
		problems = append(problems, problemf(at+" max_body", "a size up to 40MiB", "%d", h.MaxBody))
	}
	return problems
}

func (h *Hook) checkProfile(at string) (problems []admission.Problem) {
	profile, err := h.profile()
	switch {
	case err != nil && h.Profile == "generic":
		return []admission.Problem{problemf(at, "with profile generic: header <name> [<prefix>] and algorithm sha1, sha256, sha512 or token", "%v", err)}
	case profile == nil:
		return []admission.Problem{problemf(at+" profile", "one of "+strings.Join(webhook.Names(), ", ")+", generic", "%q", h.Profile)}
	}
	if h.Profile != "generic" && (h.Header != "" || h.Prefix != "" || h.Algorithm != "") {
		problems = append(problems, problemf(at, "header and algorithm only with profile generic", "profile %s with a header or an algorithm of its own", h.Profile))
	}
	switch needs := profile.NeedsSecret(); {
	case needs && len(h.SecretFiles) == 0:
		problems = append(problems, problemf(at, "secret_file <file>", "no secret"))
	case !needs && len(h.SecretFiles) > 0:
		problems = append(problems, problemf(at+" secret_file", "none: only the receiver can check this profile's credential", "a secret"))
	}
	return problems
}

// profile is the hook's kind of sender; nil when the name is unknown.
func (h *Hook) profile() (*webhook.Profile, error) {
	if h.Profile == "generic" {
		return webhook.Generic(h.Header, h.Prefix, webhook.Algorithm(h.Algorithm))
	}
	profile, _ := webhook.Lookup(h.Profile)
	return profile, nil
}

func (l *Logout) check() (problems []admission.Problem) {
	at := "logout " + l.Path
	path, query, _ := strings.Cut(l.Path, "?")
	problems = checkPath(at, path, false)
	if pairs, err := url.ParseQuery(query); err != nil || len(pairs) > 1 || strings.Contains(query, "&") {
		problems = append(problems, problemf(at, "at most one query pair", "%q", query))
	}
	for _, issuer := range l.Issuers {
		problems = append(problems, checkURL(at+" issuer", issuer.URL)...)
		problems = append(problems, checkURL(at+" issuer "+issuer.URL+" jwks", issuer.JWKS)...)
		if issuer.URL == "" {
			problems = append(problems, problemf(at+" issuer", "an http or https URL", "nothing"))
		}
	}
	if _, err := logout.New(logout.Config{Algorithms: l.Algorithms}); err != nil {
		problems = append(problems, problemf(at+" algorithms", strings.Join(logout.DefaultAlgorithms(), ", "), "%s", quoted(l.Algorithms)))
	}
	return problems
}

// checkPathsOnce refuses a path that two hooks or logouts claim.
func (p *Pool) checkPathsOnce() (problems []admission.Problem) {
	first := map[string]string{}
	claim := func(path, by string) {
		if other, taken := first[path]; taken {
			problems = append(problems, problemf(by, "each path once", "%q, which %s has", path, other))
			return
		}
		first[path] = by
	}
	for _, h := range p.Hooks {
		claim(h.Path, "webhook "+h.Path)
	}
	for _, l := range p.Logouts {
		claim(l.Path, "logout "+l.Path)
	}
	return problems
}

func checkNetworks(at string, networks []string) (problems []admission.Problem) {
	for _, network := range networks {
		if _, err := netip.ParsePrefix(network); err != nil {
			problems = append(problems, problemf(at, "networks, for instance 192.0.2.0/24", "%q", network))
		}
	}
	return problems
}

// checkPath accepts a path that has no second reading; with wildcards, "*"
// stands for one whole segment.
func checkPath(at, path string, wildcards bool) []admission.Problem {
	allowed := "a path without query, empty or dot segments, for instance /hooks/ci"
	if wildcards {
		allowed = "a path where * is one whole segment, for instance /user/oauth2/*/callback"
	}
	bad := []admission.Problem{problemf(at, allowed, "%q", path)}
	u, err := url.Parse(path)
	if err != nil || len(path) < 2 || path[0] != '/' || strings.ContainsAny(path, "?#;\\ ") || u.EscapedPath() != path {
		return bad
	}
	for i, segment := range strings.Split(path, "/") {
		switch {
		case i > 0 && segment == "", segment == ".", segment == "..":
			return bad
		case strings.Contains(segment, "*") && (!wildcards || segment != "*"):
			return bad
		}
	}
	return nil
}

func checkURL(at, raw string) []admission.Problem {
	if raw == "" {
		return nil
	}
	const allowed = "an http or https URL without user and password"
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return []admission.Problem{problemf(at, allowed, "something else")} // it may hold a password
	case u.User != nil:
		return []admission.Problem{problemf(at, allowed, "a URL with a user")}
	case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.Fragment == "":
		return nil
	}
	return []admission.Problem{problemf(at, allowed, "%q", u.Scheme+":…")}
}
