package caddymodule

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
	"github.com/caddy-admission/gateway/admission/identity"
	"github.com/caddy-admission/gateway/internal/adminapi"
)

// explain says what the configuration behind ctx, which need not run, does
// with a request. It changes nothing.
func explain(ctx caddy.Context, q adminapi.ExplainRequest) (*adminapi.Explanation, error) {
	r, err := imagine(q)
	if err != nil {
		return nil, err
	}
	app, err := ctx.AppIfConfigured("http")
	if err != nil {
		return nil, errors.New("the configuration has no sites")
	}
	web := app.(*caddyhttp.App)
	name, t := traceRequest(web, r)
	if t == nil {
		return nil, errors.New("the configuration has no server")
	}
	x := &adminapi.Explanation{Server: name, AnsweredBy: t.answeredBy, Why: t.why, Class: "none"}
	if t.answeredBy == "" {
		x.AnsweredBy = "nothing"
	}
	if t.handler == nil {
		x.Why = append(x.Why, "no admission handler stands in front of what answers this request, so nothing limits it")
		x.Why = append(x.Why, readLayout(web).warnings...)
		return x, nil
	}
	x.Reachable, x.Pool = true, t.handler.Name
	x.Site = t.handler.app.site(t.handler)
	explainClass(x, t, q.Proven)
	return x, nil
}

// imagine makes the request that q describes.
func imagine(q adminapi.ExplainRequest) (*http.Request, error) {
	u, err := url.Parse(q.URL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, errors.New("URL: allowed: http or https with a host, for instance https://git.example.com/team/app.git/info/refs?service=git-upload-pack")
	}
	r, err := http.NewRequest(q.Method, q.URL, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	for name, values := range q.Header {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
		r.Header.Del("Host")
	}
	r.RequestURI = u.RequestURI()
	r.URL.Scheme, r.URL.Host = u.Scheme, u.Host
	from := netip.MustParseAddr("192.0.2.1")
	if q.From != "" {
		if from, err = netip.ParseAddr(q.From); err != nil {
			return nil, fmt.Errorf("from: found %q; allowed: an address", q.From)
		}
	}
	r.RemoteAddr = netip.AddrPortFrom(from, 50000).String()
	return r, nil
}

// explainClass fills in what the gate would find out.
func explainClass(x *adminapi.Explanation, t *trace, proven bool) {
	def := t.handler.app.definition(t.handler.Name)
	x.Caller = explainCaller(def, t.at)
	if class, refused := ingressClass(def.pool, t.at.URL); class != admission.Other || refused {
		x.Class, x.Kind = class.String(), "configured path"
		x.Why = append(x.Why, "the path is configured as "+class.String())
		if refused {
			x.Class, x.Refused = admission.Other.String(), http.StatusBadRequest
			x.Why[len(x.Why)-1] = "the path looks like a configured one without being it"
			return
		}
		x.Budget = explainBudget(t.handler.Name, def, class)
		return
	}
	result := classify.Classify(def.profile, explainFacts(t.at))
	x.Kind, x.Repository = result.Kind.String(), result.Repository
	if result.Refuse != 0 {
		x.Class, x.Refused = admission.Other.String(), result.Refuse
		x.Why = append(x.Why, "refused whatever the load: "+result.Why)
		return
	}
	credential := explainCredential(t.at.Header, proven)
	class := classify.Class(&result, credential, false)
	if result.Kind == classify.DumbHead {
		class = admission.Other
		x.Why = append(x.Why, "HEAD counts as git only from a caller that asked this repository for info/refs in the last minute")
	}
	if class == admission.Other || len(def.rules) > 0 {
		if page, why := explainPage(def, t.at, class, result.Kind, proven); why != "" {
			x.Class, x.Why = page.String(), append(x.Why, why)
			x.Budget = explainBudget(t.handler.Name, def, page)
			return
		}
	}
	x.Class = class.String()
	x.Why = append(x.Why, whyClass(&result, credential, class)...)
	x.Budget = explainBudget(t.handler.Name, def, class)
}

// explainPage says where the operator's rules or the forge's preset send a
// request; why is empty when they say nothing.
func explainPage(def *definition, r *http.Request, class admission.Class, kind classify.Kind, proven bool) (admission.Class, string) {
	switch rule := def.rule(r); {
	case rule.Exempt:
		return admission.Other, "an exempt rule matches, so nothing limits it"
	case rule.Set && (kind == classify.Other || rule.Class != admission.Stream):
		if rule.Class == admission.Web && kind == classify.Other && proven {
			return admission.Other, "a rule puts it into web, which people with a proof are never in"
		}
		return rule.Class, "a rule puts it into " + rule.Class.String()
	case class != admission.Other:
		return class, ""
	}
	switch classify.PageOf(def.profile, explainFacts(r).Target) {
	case classify.DearPage:
		if proven {
			return admission.Other, "it is an expensive page of the forge, and people with a proof are not limited"
		}
		return admission.Web, "it is an expensive page of the forge, and the visitor has no proof (ask with --proven)"
	case classify.StreamPage:
		return admission.Stream, "its path is known for an event stream or a long poll"
	}
	return class, ""
}

func explainFacts(r *http.Request) *classify.Facts {
	u := *r.URL
	u.Scheme, u.Host = "", ""
	target := u.EscapedPath()
	if u.RawQuery != "" || u.ForceQuery {
		target += "?" + u.RawQuery
	}
	return &classify.Facts{
		Method: r.Method, Target: target, Host: r.Host,
		ContentType: r.Header["Content-Type"], ContentEncoding: r.Header["Content-Encoding"], ContentLength: r.ContentLength,
	}
}

// explainCredential looks at the header only: whether a credential is proven
// is not looked up, because looking counts as a use.
func explainCredential(h http.Header, proven bool) classify.Credential {
	switch form := identity.NewStore().Parse(h).Form; {
	case form == identity.None:
		return classify.NoCredential
	case form == identity.Unusable:
		return classify.Unusable
	case proven:
		return classify.Proven
	}
	return classify.Unproven
}

func whyClass(r *classify.Result, c classify.Credential, class admission.Class) []string {
	if class == admission.Other {
		return []string{"it is no git request: it passes, and nothing limits it unless class other is capped"}
	}
	why := []string{fmt.Sprintf("it is a git request (%s) with credential: %s", r.Kind, c)}
	switch c {
	case classify.NoCredential:
		if class == admission.Discovery {
			why = append(why, "it becomes anonymous once the repository has answered such a request without a credential")
		}
	case classify.Unusable:
		why = append(why, "this kind of credential, or its spelling, can prove nothing")
	case classify.Unproven:
		proven := classify.Class(r, classify.Proven, false)
		why = append(why, fmt.Sprintf("a credential buys nothing until the upstream accepted it where it refused a stranger; then the class is %s (ask with --proven)", proven))
	}
	return why
}

func explainCaller(def *definition, r *http.Request) adminapi.Caller {
	bits4, bits6 := 32, 64
	if c := def.pool.Caller; c != nil {
		if c.IPv4Bits != 0 {
			bits4 = c.IPv4Bits
		}
		if c.IPv6Bits != 0 {
			bits6 = c.IPv6Bits
		}
	}
	addr, counts := newLoadNotes(zap.NewNop()).clientIP(def.pool.Caller)(r)
	if !addr.IsValid() {
		return adminapi.Caller{Address: "none", Counts: counts}
	}
	bits := bits6
	if addr.Is4() {
		bits = bits4
	}
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return adminapi.Caller{Address: addr.String(), Counts: counts}
	}
	return adminapi.Caller{Address: addr.String(), Counts: counts, Prefix: prefix.String()}
}

// explainBudget reads the numbers of the pool in force, else those of the
// configuration that was asked about.
func explainBudget(pool string, def *definition, class admission.Class) *adminapi.Budget {
	policy := def.policy
	b := &adminapi.Budget{CallerMax: map[string]int{}}
	for _, p := range process.list() {
		if p.name == pool && p.active {
			policy = p.state.Controller.Policy()
			c := p.state.Controller.Snapshot().Classes[class]
			b.InUse, b.Waiting = c.InUse, c.Waiting
		}
	}
	c := &policy.Classes[class]
	b.Reserve, b.Max, b.DryRun = c.Reserve, c.Max, c.DryRun
	b.Wait, b.Deadline = "off", "none"
	if c.WaitSize > 0 {
		b.Wait = fmt.Sprintf("%d for %s", c.WaitSize, c.WaitMax)
	}
	if c.Deadline > 0 {
		b.Deadline = c.Deadline.Truncate(time.Millisecond).String()
	}
	b.Bucket, b.Bytes, b.CallerBucket = bucketText(c.Bucket), bucketText(c.Bytes), bucketText(c.CallerBucket)
	for scope := range admission.NumScopes {
		if n := c.CallerMax[scope]; n > 0 {
			b.CallerMax[scopeName(c, scope)] = n
		}
	}
	return b
}

func bucketText(b admission.BucketPolicy) string {
	if !b.On() {
		return "none"
	}
	return fmt.Sprintf("%d, %g/s", b.Burst, b.PerSecond)
}

func scopeName(c *admission.ClassPolicy, s admission.Scope) string {
	switch s {
	case admission.ByAddress:
		return "address"
	case admission.ByCredential:
		return "credential"
	case admission.ByRepository:
		return "repository"
	}
	return c.CustomBy[s-admission.ByCustom0]
}

// ingressClass is the class of a configured path. refused means that the path
// only looks like one.
func ingressClass(p *Pool, u *url.URL) (class admission.Class, refused bool) {
	path := u.EscapedPath()
	var exact []string
	for _, h := range p.Hooks {
		if exact = append(exact, h.Path); h.Path == path {
			return admission.Webhook, false
		}
	}
	for _, l := range p.Logouts {
		base, query, _ := strings.Cut(l.Path, "?")
		if exact = append(exact, base); base == path && (query == "" || slices.Contains(strings.Split(u.RawQuery, "&"), query)) {
			return admission.Logout, false
		}
	}
	q := u.Query()
	returns := q.Has("state") && (q.Has("code") || q.Has("error"))
	for _, pattern := range p.LoginCallback {
		if fits(pattern, path) {
			if slices.Contains(p.LoginStart, pattern) && !returns {
				return admission.LoginStart, false
			}
			return admission.LoginCallback, false
		}
	}
	for _, pattern := range p.LoginStart {
		if fits(pattern, path) {
			return admission.LoginStart, false
		}
	}
	for _, e := range exact {
		if path != e && classify.Fold(path) == classify.Fold(e) {
			return admission.Other, true
		}
	}
	return admission.Other, false
}

// fits reports whether a path fits a pattern in which "*" is one whole segment.
func fits(pattern, path string) bool {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if want[i] != got[i] && (want[i] != "*" || got[i] == "") {
			return false
		}
	}
	return true
}
