package caddymodule

import (
	"slices"

	"github.com/caddy-admission/gateway/admission/gate"
	"github.com/caddy-admission/gateway/admission/spool"
	"github.com/caddy-admission/gateway/admission/webhook"
)

// spoolPlan is what one configuration wants of the spool of one pool.
type spoolPlan struct {
	config spool.Config
	hooks  []spool.HookConfig
}

// loadSpool makes the plan of a pool that was compiled without a problem, nil
// without a spool. It reads TLS files, opens nothing and changes nothing.
func (p *Pool) loadSpool(in *gate.IngressConfig) (*spoolPlan, error) {
	if p.Spool == nil {
		return nil, nil
	}
	plan := &spoolPlan{config: p.Spool.config()}
	for i, h := range p.Hooks {
		if h.Deliver != "" {
			plan.hooks = append(plan.hooks, h.spoolHook(in.Hooks[i].Profile, in.Hooks[i].Secrets))
		}
	}
	return plan, spool.CheckHooks(plan.hooks)
}

// spoolHook is the hook as the spool knows it: under its path.
func (h *Hook) spoolHook(profile *webhook.Profile, secrets webhook.Secrets) spool.HookConfig {
	c := spool.HookConfig{
		Name: h.Path, Deliver: h.Deliver, Keep: h.keep(),
		Headers: profile.Headers(), SecretHeaders: append(profile.Companions(), profile.Canonical()),
	}
	if name, value := secrets.Credential(profile); name != "" {
		c.Restore = map[string]string{name: value}
	}
	o := h.DeliverOptions
	if o == nil {
		return c
	}
	c.Permits, c.Tries, c.TLS = o.Permits, o.Tries, o.TLS
	c.FreshWait, c.Timeout, c.TryFor = spool.Duration(o.FreshWait), spool.Duration(o.Timeout), spool.Duration(o.TryFor)
	c.Headers = slices.Concat(c.Headers, o.Headers)
	c.SecretHeaders = slices.Concat(c.SecretHeaders, o.SecretHeaders)
	c.Status = make(map[string]spool.Verdict, len(o.Status))
	for key, verdict := range o.Status {
		c.Status[key] = spool.Verdict(verdict)
	}
	return c
}

// ingressOf completes a pool's ingress for this configuration: where refused
// deliveries are noted, and a committer at each hook that has a receiver of its
// own. The pool's state was acquired.
func (a *App) ingressOf(name string, def *definition) *gate.IngressConfig {
	if def.ingress == nil {
		return nil
	}
	in := *def.ingress
	in.Refused = noteRefused(process.refused(name))
	if def.spool == nil {
		return &in
	}
	in.Hooks = slices.Clone(in.Hooks)
	k := keepers.acquire(a.gen, name)
	for i, h := range def.pool.Hooks {
		if h.Deliver != "" {
			in.Hooks[i].Commit = &committer{keeper: k, hook: h.Path, mode: h.keep(), started: a.inForce}
		}
	}
	return &in
}
