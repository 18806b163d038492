package cases

import (
	"slices"
	"strings"
)

// Paths of the forge's own sign-in and sign-out.
const (
	logoutPath        = "/oidc/backchannel-logout"
	loginPaths        = "/user/login /user/oauth2/*"
	loginCallbackPath = "/user/oauth2/*/callback"
)

// largestDelivery is what an undeclared body is charged, in bytes; the product
// has no setting for it.
const largestDelivery = 25 << 20

// ingress writes hooks, logout, login and the spool.
func (a *adapter) ingress() {
	a.webhooks()
	for _, h := range a.hooks() {
		a.hook(h)
	}
	a.add("\t\tlogout %s", logoutPath)
	a.add("\t\tlogin_callback %s\n\t\tlogin_start %s", loginCallbackPath, loginPaths)
	a.accountBudget()
	if a.keeps() {
		a.spool()
	}
}

// accountBudget takes the one word that the product answers by not having it:
// a budget per account name that only slows down. The product never reads the
// form of a sign-in, so no account can be locked out.
func (a *adapter) accountBudget() {
	if b, ok := a.setup.Budgets["login_account"]; ok && b.Action != "slow" {
		a.fail("budget login_account: the product keeps no budget per account")
	}
}

func (a *adapter) webhooks() {
	a.add("\t\twebhooks {")
	if n := a.permits("webhook"); n >= 0 {
		a.add("\t\t\tpermits %d", n)
	}
	if b, ok := a.budget("webhook_requests"); ok {
		a.add("\t\t\trequests %s", bucketText(b))
	}
	if b, ok := a.budget("webhook_bytes"); ok {
		if b.UndeclaredCharge != 0 && b.UndeclaredCharge != largestDelivery {
			a.fail("budget webhook_bytes: the product charges an undeclared body %d bytes", largestDelivery)
		}
		a.add("\t\t\tbytes %s", bucketText(b))
	}
	a.add("\t\t}")
}

// hooks are those of the profile, with the setup's instead of or beside them.
func (a *adapter) hooks() []WebhookSetup {
	var list []WebhookSetup
	if a.setup.Profile == "small" {
		list = slices.Clone(smallHooks)
	}
	for _, h := range a.setup.Webhooks {
		list = slices.DeleteFunc(list, func(o WebhookSetup) bool { return o.Path == h.Path })
		list = append(list, h)
	}
	return list
}

func (a *adapter) hook(h WebhookSetup) {
	if a.off.NoVerify {
		return
	}
	a.add("\t\twebhook %s {\n\t\t\tprofile %s", h.Path, h.Scheme)
	for _, s := range h.Secrets {
		a.add("\t\t\tsecret_file %s", a.secretFile(s))
	}
	if h.MaxBody != 0 && h.MaxBody != largestDelivery {
		a.add("\t\t\tmax_body %d", h.MaxBody)
	}
	if b, ok := a.budget("webhook_per_hook"); ok && !a.off.NoBuckets {
		a.add("\t\t\tbucket %s", bucketText(b))
	}
	if a.keeps() {
		a.add("\t\t\tkeep always\n\t\t\tdeliver http://%s%s {", a.addresses[ciUpstream], h.Path)
		if n := a.setup.Spool.Concurrency; n > 0 {
			a.add("\t\t\t\tpermits %d", n)
		}
		a.add("\t\t\t}")
	}
	a.add("\t\t}")
}

func (a *adapter) keeps() bool {
	return a.setup.Spool != nil && a.setup.Spool.Webhook && !a.off.NoSpool
}

// spoolDir is where deliveries are kept.
func (g *gateway) spoolDir() string { return g.file("spool") }

func (a *adapter) spool() {
	s := a.setup.Spool
	a.add("\t\tspool %s {", a.gateway.spoolDir())
	if s.MaxItems > 0 {
		a.add("\t\t\tmax_items %d", s.MaxItems)
	}
	if s.MaxBytes > 0 {
		a.add("\t\t\tmax_bytes %d", s.MaxBytes)
	}
	if s.MaxAgeMS > 0 {
		a.add("\t\t\tmax_age %s", duration(s.MaxAgeMS))
	}
	a.add("\t\t}")
	if s.Lanes != "" && !strings.HasPrefix(s.Lanes, "repo") {
		a.fail("spool: unknown lanes %q", s.Lanes)
	}
	if s.Fsync != nil && !*s.Fsync {
		a.fail("spool: the product cannot keep without fsync")
	}
}
