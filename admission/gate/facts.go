package gate

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
	"github.com/caddy-admission/gateway/admission/identity"
)

// subject is everything the gate knows about one request before it decides.
type subject struct {
	now    time.Time
	addr   netip.Addr
	caller admission.Key // 0: not a caller
	group  admission.Key

	result classify.Result
	cred   identity.Credential
	state  classify.Credential
	rest   identity.Digest
	target identity.Target
	class  admission.Class
	shape  shape
	resume bool // a grant covers this request

	// Proof that no Authorization line carries, and whose permits then count
	// together; account is 0 while nobody knows.
	vouched bool
	account admission.Key
	session identity.Credential // of a page's visitor, once proven

	ruled bool // the operator's rule chose the class
}

// classifyFacts reads what the classifier needs. The target is the one next
// would forward, so a rewrite in front of this handler is seen.
func classifyFacts(r *http.Request) classify.Facts {
	f := classify.Facts{
		Method:          r.Method,
		Target:          target(r.URL),
		Host:            r.Host,
		ContentType:     r.Header["Content-Type"],
		ContentEncoding: r.Header["Content-Encoding"],
		ContentLength:   r.ContentLength,
		Chunked:         len(r.TransferEncoding) > 0 && r.TransferEncoding[0] == "chunked",
		HTTP10:          r.ProtoMajor == 1 && r.ProtoMinor == 0,
	}
	if r.TLS != nil {
		f.ServerName = r.TLS.ServerName
	}
	return f
}

// target is the escaped request-target as the upstream will see it.
func target(u *url.URL) string {
	var b strings.Builder
	switch {
	case u.Opaque != "":
		// net/http's transport forwards it as it stands.
		b.WriteString(u.Scheme + ":" + u.Opaque)
	case u.Host != "" || u.Scheme != "":
		b.WriteString(u.Scheme + "://" + u.Host)
		fallthrough
	default:
		b.WriteString(u.EscapedPath())
	}
	if u.RawQuery != "" || u.ForceQuery {
		b.WriteByte('?')
		b.WriteString(u.RawQuery)
	}
	return b.String()
}

// forward rewrites r to the normal form of its path, in place, and drops the
// header with which some frameworks change the method.
func forward(r *http.Request, path string) {
	r.Header.Del("X-Http-Method-Override")
	if path == "" {
		return
	}
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return // the classifier only returns valid escapes
	}
	r.URL.Path, r.URL.RawPath = decoded, path
	r.RequestURI = r.URL.RequestURI()
}

// subject identifies the caller and its credential.
func (g *Gate) subject(r *http.Request, res classify.Result) *subject {
	s := &subject{now: clock(), result: res}
	var isCaller bool
	s.addr, isCaller = g.opts.ClientIP(r)
	s.group = g.state.Keyer.Group(s.addr)
	if isCaller {
		s.caller = g.state.Keyer.AddrBits(s.addr, g.opts.IPv4Bits, g.opts.IPv6Bits)
		if s.caller == 0 {
			s.caller = g.state.Keyer.String(noCaller)
		}
	}
	g.vouch(r, s, isCaller)
	s.cred = g.state.Identity.Parse(r.Header)
	s.rest = g.state.Identity.Rest(r)
	s.target = identity.Target{Site: g.opts.Site, Repository: res.Repository, Service: res.Service}
	switch {
	case s.cred.Form == identity.None:
		s.state = classify.NoCredential
	case s.cred.Form == identity.Unusable:
		s.state = classify.Unusable
	case g.state.Identity.Proven(s.cred, s.group, s.now):
		s.state = classify.Proven
		g.remember(s)
	default:
		s.state = classify.Unproven
	}
	g.place(s)
	return s
}

// place decides the class of s. The service of an LFS call is known only later,
// so it is placed once more then.
func (g *Gate) place(s *subject) {
	if s.ruled {
		return
	}
	state := s.state
	if s.vouched {
		state = classify.Proven
	}
	open := state == classify.NoCredential && g.state.Identity.Open(s.target, s.now)
	s.class = classify.Class(&s.result, state, open)
}

// grantKey is who may continue what s began.
func (g *Gate) grantKey(s *subject) grantKey {
	return grantKey{caller: s.caller, secret: s.cred.Secret, repository: g.repositoryKey(s)}
}

func (g *Gate) repositoryKey(s *subject) admission.Key {
	return g.state.Keyer.String(g.opts.Site + "\x00" + s.result.Repository)
}

// request is the engine's view of the subject.
func (g *Gate) request(r *http.Request, s *subject) *admission.Request {
	q := &admission.Request{Class: s.class, Now: s.now, Group: s.group, Proven: s.proven(), Continuation: s.resume,
		ComesBack: isLFS(s.result.Kind)}
	g.setCaller(q, s.addr, s.caller)
	if q.Proven {
		q.Keys[admission.ByCredential] = g.userKey(s)
	} else if s.class == admission.LFS {
		q.Proven = g.state.Identity.ProvenGroup(s.group, s.now)
	}
	if s.result.Repository != "" {
		q.Keys[admission.ByRepository] = g.repositoryKey(s)
	}
	if s.dear() {
		q.Keys[admission.ByDear], q.Keys[admission.ByDearRepository] = dearKey, q.Keys[admission.ByRepository]
	}
	for i, name := range g.state.Controller.Policy().Classes[s.class].CustomBy {
		if name == "" || g.opts.Placeholder == nil {
			continue
		}
		if v := g.opts.Placeholder(r, name); v != "" {
			q.Keys[int(admission.ByCustom0)+i] = g.customKey(v)
		}
	}
	if (s.class == admission.Candidate || s.class == admission.Discovery) && !q.Continuation {
		q.Continuation = g.preferred(s)
	}
	return q
}
