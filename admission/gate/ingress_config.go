package gate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
	"github.com/caddy-admission/gateway/admission/logout"
	"github.com/caddy-admission/gateway/admission/webhook"
)

// IngressConfig says which paths carry webhooks, back-channel logouts and
// logins. Pool sizes, the group's buckets, waits and class deadlines come from
// the policy's classes webhook, logout, login_start and login_callback. It is
// not changed after New.
type IngressConfig struct {
	Hooks   []HookConfig
	Logouts []LogoutConfig

	// LoginStart and LoginCallback are path patterns; "*" stands for exactly
	// one non-empty path segment. A pattern in both lists is told apart by the
	// query: `state` with `code` or `error` makes a callback.
	LoginStart    []string
	LoginCallback []string

	// Senders are networks whose callers count as known from the start, for
	// hooks and logouts.
	Senders []netip.Prefix

	// Refused is told of every delivery that was not taken; nil tells nobody.
	// It must be fast and must not block.
	Refused func(*RefusedDelivery)
}

// HookConfig is one path that takes deliveries of one kind of sender.
type HookConfig struct {
	Path    string // exact, canonical, escaped as on the wire
	Profile *webhook.Profile
	Secrets webhook.Secrets

	// MaxBody lowers the profile's body cap, bytes; 0 keeps it.
	MaxBody int64
	// Deadline lowers the profile's deadline; 0 keeps it. The class's deadline
	// holds beside it.
	Deadline time.Duration
	// Bucket and Bytes are budgets of this hook beside the group's; the zero
	// value is none.
	Bucket, Bytes admission.BucketPolicy
	// Senders are known senders of this hook beside IngressConfig.Senders.
	Senders []netip.Prefix

	// Commit takes over verified deliveries (`keep overflow` and `always`).
	// Nil hands them to next and holds the permit until its answer (`keep off`).
	Commit Committer
}

// Committer makes a verified delivery safe or delivers it. Commit returns the
// answer for the sender; its permit is held until then. An error answers 503
// and its text is never shown. It must respect ctx, must be safe for
// concurrent use, and may keep the delivery's header and body, which are not
// changed afterwards.
type Committer interface {
	Commit(ctx context.Context, d *VerifiedDelivery) (CommitAnswer, error)
}

// VerifiedDelivery is what the gate verified, with the exact bytes received.
type VerifiedDelivery struct {
	webhook.Delivery
	Hook     string // the configured path
	Path     string // escaped path as received
	Query    string // raw query as received; may hold a credential
	Header   http.Header
	Body     []byte
	Received time.Time
}

// CommitAnswer is the answer a Committer wants the sender to get.
type CommitAnswer struct {
	Status int
	Header http.Header // copied; may be nil
	Body   []byte
	Kept   bool // it was written to disk: counted as kept, not as delivered
}

// LogoutConfig is one path that takes back-channel logouts.
type LogoutConfig struct {
	// Path, optionally with one query pair ("/oidc/callback?logout=backchannel")
	// without which a request is not a logout: some relying parties take logout
	// and callback on one path.
	Path    string
	Checker *logout.Checker // nil checks the shape only
	// Forged is the budget of tokens whose signature failed; zero means burst
	// 64, 32 a second.
	Forged admission.BucketPolicy
}

// forgedDefault equals the budget of genuine logouts.
var forgedDefault = admission.BucketPolicy{Burst: 64, PerSecond: 32}

// ingress is a compiled IngressConfig. It is immutable; everything that
// changes lives in State.
type ingress struct {
	state    *State
	exact    map[string][]*route // by escaped path
	patterns []*route
	folded   map[string]admission.Class // folds of exact paths
	senders  []netip.Prefix
	refused  func(*RefusedDelivery)
}

// route is one configured path.
type route struct {
	path     string
	class    admission.Class
	query    [2]string // required pair, "" = none
	segments []string  // of a pattern, else nil
	folded   []string  // of a pattern, folded
	both     bool      // start and callback share the path

	hook   *hook
	logout *LogoutConfig
}

// hook is a HookConfig ready for use.
type hook struct {
	HookConfig
	verifier *webhook.Verifier
}

// newIngress compiles c; all mistakes are reported at once.
func newIngress(c *IngressConfig, state *State) (*ingress, error) {
	in := &ingress{state: state, exact: map[string][]*route{}, folded: map[string]admission.Class{}, senders: c.Senders, refused: c.Refused}
	var mistakes []error
	add := func(err error) {
		if err != nil {
			mistakes = append(mistakes, err)
		}
	}
	for i := range c.Hooks {
		add(in.addHook(c.Hooks[i]))
	}
	for i := range c.Logouts {
		add(in.addLogout(c.Logouts[i]))
	}
	starts := map[string]bool{}
	for _, p := range c.LoginStart {
		starts[p] = true
	}
	both := map[string]bool{}
	for _, p := range c.LoginCallback {
		both[p] = starts[p]
		add(in.addRoute(&route{path: p, class: admission.LoginCallback, both: starts[p]}))
	}
	for _, p := range c.LoginStart {
		if !both[p] {
			add(in.addRoute(&route{path: p, class: admission.LoginStart}))
		}
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	return in, nil
}

func (in *ingress) addHook(c HookConfig) error {
	if c.Profile == nil {
		return fmt.Errorf("webhook %s: no profile", c.Path)
	}
	v, err := webhook.New(c.Profile, c.Secrets, c.MaxBody)
	if err != nil {
		return fmt.Errorf("webhook %s: %w", c.Path, err)
	}
	if c.Commit != nil && !c.Profile.NeedsSecret() {
		return fmt.Errorf("webhook %s: only verified deliveries can be kept, and profile %s cannot be verified here", c.Path, c.Profile.Name)
	}
	return in.addRoute(&route{path: c.Path, class: admission.Webhook, hook: &hook{c, v}})
}

func (in *ingress) addLogout(c LogoutConfig) error {
	if c.Checker == nil {
		c.Checker, _ = logout.New(logout.Config{})
	}
	if !c.Forged.On() {
		c.Forged = forgedDefault
	}
	ro := &route{class: admission.Logout, logout: &c}
	var query string
	ro.path, query, _ = strings.Cut(c.Path, "?")
	if query != "" {
		pairs, err := url.ParseQuery(query)
		if err != nil || len(pairs) != 1 || strings.Contains(query, "&") {
			return fmt.Errorf("logout %s: at most one query pair", ro.path)
		}
		for k := range pairs {
			ro.query = [2]string{k, pairs.Get(k)}
		}
	}
	return in.addRoute(ro)
}

func (in *ingress) addRoute(ro *route) error {
	name := ro.class.String() + " " + ro.path
	if !canonicalPath(ro.path) {
		return fmt.Errorf("%s: want a path like /hooks/ci without query, empty or dot segments", name)
	}
	if strings.Contains(ro.path, "*") {
		if ro.class != admission.LoginStart && ro.class != admission.LoginCallback {
			return fmt.Errorf("%s: patterns are for logins only", name)
		}
		ro.segments = strings.Split(ro.path[1:], "/")
		for _, s := range ro.segments {
			if s != "*" && strings.Contains(s, "*") {
				return fmt.Errorf("%s: * stands for a whole segment", name)
			}
		}
		ro.folded = strings.Split(classify.Fold(ro.path)[1:], "/")
		in.patterns = append(in.patterns, ro)
		return nil
	}
	for _, other := range in.exact[ro.path] {
		if other.query == ro.query {
			return fmt.Errorf("%s: the path is configured twice", name)
		}
	}
	// A route that asks for a query pair is tried before one that does not.
	if ro.query[0] != "" {
		in.exact[ro.path] = append([]*route{ro}, in.exact[ro.path]...)
	} else {
		in.exact[ro.path] = append(in.exact[ro.path], ro)
	}
	in.folded[classify.Fold(ro.path)] = ro.class
	return nil
}

// canonicalPath accepts an absolute path whose only reading is itself.
func canonicalPath(p string) bool {
	if len(p) < 2 || p[0] != '/' || strings.ContainsAny(p, "?#;\\ ") || strings.Contains(p, "//") {
		return false
	}
	for _, s := range strings.Split(p, "/") {
		if s == "." || s == ".." {
			return false
		}
	}
	u, err := url.Parse(p)
	return err == nil && u.EscapedPath() == p
}
