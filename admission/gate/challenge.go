package gate

import (
	"net/http"
	"strconv"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
	"github.com/caddy-admission/gateway/admission/identity"
)

// saveChallenge remembers the upstream's 401 for a bare discovery request.
// Cookies are never kept: they belong to one visitor.
func (x *exchange) saveChallenge(complete bool) {
	h, s := x.out.header, x.s
	if s.rest != (identity.Digest{}) || !complete || h.Get("Content-Encoding") != "" {
		return
	}
	c := identity.Challenge{
		Status:          x.out.status,
		WWWAuthenticate: h["Www-Authenticate"],
		ContentType:     h.Get("Content-Type"),
		Body:            x.out.held,
		At:              clock(),
	}
	x.g.state.Identity.SaveChallenge(s.target, c)
	if any, ok := x.g.anyRepository(s); ok {
		x.g.state.Identity.SaveChallenge(any, c)
	}
}

// anyRepository is the target under which a forge's challenge to push is kept
// for all of its repositories.
func (g *Gate) anyRepository(s *subject) (identity.Target, bool) {
	switch g.opts.Profile {
	case classify.Gitea, classify.Forgejo, classify.GitLab, classify.Gogs:
		t := identity.Target{Site: s.target.Site, Service: s.target.Service}
		return t, s.result.Kind == classify.PushDiscovery
	}
	return identity.Target{}, false
}

// challenge returns a fresh challenge for a bare discovery request. With a
// forge profile any repository's challenge for git-receive-pack will do,
// because such a server asks everybody who wants to push.
func (g *Gate) challenge(s *subject) (identity.Challenge, bool) {
	if s.class != admission.Discovery || s.rest != (identity.Digest{}) || s.state != classify.NoCredential {
		return identity.Challenge{}, false
	}
	c, ok := g.state.Identity.Challenge(s.target, s.now)
	if any, forge := g.anyRepository(s); !ok && forge {
		return g.state.Identity.Challenge(any, s.now)
	}
	return c, ok
}

// replay answers with a remembered challenge; the upstream is not asked.
func (g *Gate) replay(w http.ResponseWriter, r *http.Request, c identity.Challenge) {
	g.state.Identity.CountReplay()
	d := DecisionFrom(r.Context())
	d.Outcome = "challenge_replayed"
	h := w.Header()
	h["Www-Authenticate"] = c.WWWAuthenticate
	if c.ContentType != "" {
		h.Set("Content-Type", c.ContentType)
	}
	h.Set("Content-Length", strconv.Itoa(len(c.Body)))
	h.Set("Cache-Control", "no-store")
	h.Set(HeaderRefused, "challenge; class="+d.Class)
	w.WriteHeader(c.Status)
	_, _ = w.Write(c.Body)
}
