package gate

import (
	"net/http"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
)

// Rule is what an operator's own matcher says about a request. The zero value
// says nothing.
type Rule struct {
	// Set: the rule applies.
	Set bool
	// Exempt: nothing limits the request. A request whose spelling is refused
	// stays refused, because two servers would read it differently.
	Exempt bool
	// Class to use otherwise: Anonymous, LFS, Web, Stream or Other. A class
	// that only a proof opens cannot be given away (see [RuleClass]).
	Class admission.Class
}

// RuleClass reports whether a rule may put requests into class c. A rule knows
// only what a client says, so it can take privilege away, never give it.
func RuleClass(c admission.Class) bool {
	switch c {
	case admission.Anonymous, admission.LFS, admission.Web, admission.Stream, admission.Other:
		return true
	}
	return false
}

// page is what r asks of the forge; without a preset there are no pages.
func (g *Gate) page(r *http.Request) classify.Page {
	if g.preset == nil {
		return classify.PlainPage
	}
	target := r.URL.EscapedPath()
	if r.URL.RawQuery != "" {
		target += "?" + r.URL.RawQuery
	}
	return classify.PageOf(g.opts.Profile, target)
}

// rule asks the operator's matchers about r.
func (g *Gate) rule(r *http.Request) Rule {
	if g.opts.Rule == nil {
		return Rule{}
	}
	if u := g.opts.Rule(r); u.Set && (u.Exempt || RuleClass(u.Class)) {
		return u
	}
	return Rule{}
}

// servePage handles a request that is no git request: by the operator's rules,
// else by the forge's preset, else as class other.
func (g *Gate) servePage(w http.ResponseWriter, r *http.Request, page classify.Page, next Next) error {
	rule := g.rule(r)
	class := admission.Other
	switch {
	case rule.Exempt:
		DecisionFrom(r.Context()).Class = "exempt"
		return next(w, r)
	case rule.Set:
		class = rule.Class
	case page == classify.DearPage:
		class = admission.Web
	case page == classify.StreamPage:
		class = admission.Stream
	}
	switch class {
	case admission.Web:
		return g.serveWeb(w, r, next)
	case admission.Stream:
		return g.serveStream(w, r, next)
	case admission.Anonymous, admission.LFS:
		s := g.subject(r, classify.Result{})
		s.class = class
		return g.serveAs(w, r, s, next)
	}
	return g.serveOther(w, r, next)
}

// serveWeb admits an expensive page: people who have a proof are not limited,
// everybody else shares class web.
func (g *Gate) serveWeb(w http.ResponseWriter, r *http.Request, next Next) error {
	s := g.subject(r, classify.Result{})
	if g.known(r, s, next) {
		if s.session.Usable() {
			next = g.watchSession(s, next)
		}
		return g.serveOther(w, r, next)
	}
	s.class = admission.Web
	return g.serveAs(w, r, s, next)
}

// serveAs admits r in the class of s and runs it.
func (g *Gate) serveAs(w http.ResponseWriter, r *http.Request, s *subject, next Next) error {
	DecisionFrom(r.Context()).Class = s.class.String()
	permit, ok := g.admit(w, r, s)
	if !ok {
		return nil
	}
	return g.run(w, r, s, permit, nil, next)
}

// serveStream runs a request whose path is known for streams and long polls.
// While class stream is full it stays where it was, in other, unless the
// operator has capped streams.
func (g *Gate) serveStream(w http.ResponseWriter, r *http.Request, next Next) error {
	s := g.subject(r, classify.Result{})
	s.class = admission.Stream
	if g.opts.StreamRefuses {
		return g.serveAs(w, r, s, next)
	}
	s.class = admission.Other
	permit, ok := g.admit(w, r, s)
	if !ok {
		return nil
	}
	if permit.Move(admission.Stream) {
		s.class = admission.Stream
	}
	DecisionFrom(r.Context()).Class = s.class.String()
	return g.run(w, r, s, permit, nil, next)
}
