package caddymodule

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/gate"
	"github.com/caddy-admission/gateway/admission/logout"
	"github.com/caddy-admission/gateway/admission/webhook"
)

// hasIngress reports whether the pool configures any path of its own.
func (p *Pool) hasIngress() bool {
	return len(p.Hooks)+len(p.Logouts)+len(p.LoginStart)+len(p.LoginCallback) > 0
}

// loadIngress reads the secrets and makes the gate's configuration. It reads
// files and changes nothing; all mistakes are reported at once. The pool was
// compiled without a problem.
func (p *Pool) loadIngress() (*gate.IngressConfig, []webhook.Warning, error) {
	if !p.hasIngress() {
		return nil, nil, nil
	}
	in := &gate.IngressConfig{LoginStart: p.LoginStart, LoginCallback: p.LoginCallback}
	if p.Webhooks != nil {
		in.Senders = prefixes(p.Webhooks.Senders)
	}
	var (
		warnings []webhook.Warning
		mistakes []error
	)
	for _, h := range p.Hooks {
		hook, warns, err := h.load()
		warnings = append(warnings, warns...)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("webhook %s: %w", h.Path, err))
		}
		in.Hooks = append(in.Hooks, hook)
	}
	for _, l := range p.Logouts {
		out, err := l.load()
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("logout %s: %w", l.Path, err))
		}
		in.Logouts = append(in.Logouts, out)
	}
	return in, warnings, errors.Join(mistakes...)
}

func (h *Hook) load() (gate.HookConfig, []webhook.Warning, error) {
	c := gate.HookConfig{
		Path: h.Path, MaxBody: h.MaxBody, Deadline: time.Duration(h.Deadline),
		Bucket: bucketPolicy(h.Bucket), Bytes: bucketPolicy(h.Bytes), Senders: prefixes(h.Senders),
	}
	profile, err := h.profile()
	if err != nil {
		return c, nil, err
	}
	secrets, warnings, err := webhook.LoadSecrets(h.SecretFiles)
	if err != nil {
		return c, warnings, err
	}
	c.Profile, c.Secrets = profile, secrets
	_, err = webhook.New(profile, secrets, h.MaxBody) // a secret in the wrong form
	return c, warnings, err
}

func (l *Logout) load() (gate.LogoutConfig, error) {
	c := gate.LogoutConfig{Path: l.Path, Forged: bucketPolicy(l.Forged)}
	config := logout.Config{Algorithms: l.Algorithms}
	for _, issuer := range l.Issuers {
		keys, err := logout.NewKeys(logout.KeySource{Issuer: issuer.URL, URL: issuer.JWKS})
		if err != nil {
			return c, err
		}
		config.Issuers = append(config.Issuers, logout.Issuer{URL: issuer.URL, Clients: issuer.Clients, Keys: keys})
	}
	var err error
	c.Checker, err = logout.New(config)
	return c, err
}

func bucketPolicy(b *admission.BucketConfig) admission.BucketPolicy {
	if b == nil {
		return admission.BucketPolicy{}
	}
	return admission.BucketPolicy{Burst: b.Burst, PerSecond: b.PerSecond}
}

// prefixes parses networks that were checked before.
func prefixes(networks []string) []netip.Prefix {
	var out []netip.Prefix
	for _, network := range networks {
		if p, err := netip.ParsePrefix(network); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}
