package gate

import (
	"context"
	"errors"
	"net/http"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
	"github.com/caddy-admission/gateway/admission/identity"
)

// answerCut tells the client that the gate ended its request before the
// upstream had answered.
func (g *Gate) answerCut(w http.ResponseWriter, r *http.Request, s *subject, cause error) {
	a := answer{status: http.StatusGatewayTimeout, class: s.class, reason: "deadline", text: "gateway: the server behind did not answer in time"}
	if errors.Is(cause, errStalled) {
		a.status, a.reason, a.text = http.StatusRequestTimeout, "stalled", "gateway: the connection made no progress"
	}
	a.lfs = isLFS(s.result.Kind)
	w.Header().Set("Connection", "close")
	g.refuse(w, r, a)
}

// holdsAnswer reports whether the start of the upstream's answer is judged
// before the client sees it.
func (s *subject) holdsAnswer() bool {
	if s.state == classify.NoCredential && s.result.Kind == classify.LFSLocks {
		return s.result.Canonical
	}
	return s.askable() && (s.state == classify.Unproven || s.state == classify.NoCredential)
}

// exchange is one admitted request and what its answer teaches.
type exchange struct {
	g      *Gate
	s      *subject
	r      *http.Request
	b      *body
	next   Next
	out    *writer
	permit admission.Permit
	left   *abandonment // nil: the client's leaving ends the request
	before http.Header  // as it was when the request came in, where streams are capped
}

// judge looks at the held answer of a request without proof: a bare one counts
// as an answer, a credential's raises the question. When the answer is
// complete, the permit ends before the client reads it.
func (x *exchange) judge(complete bool) {
	id, s := x.g.state.Identity, x.s
	ok := accepted(s, x.out.status, x.out.header, x.out.held)
	switch {
	case s.state == classify.NoCredential && ok:
		id.RecordBare(s.target, s.rest, identity.Accepted, s.now)
	case s.state == classify.NoCredential && x.out.status == http.StatusUnauthorized:
		id.RecordBare(s.target, s.rest, identity.Refused, s.now)
		x.saveChallenge(complete)
	case s.state == classify.Unproven && ok:
		x.prove()
	case s.state == classify.Proven && ok:
		x.name()
	}
	if complete && x.out.status != 0 {
		x.permit.End(outcomeOf(x.out, x.out.status, nil, x.r.Context(), nil))
	}
}

// prove asks the question unless its answer is known.
func (x *exchange) prove() {
	id, s := x.g.state.Identity, x.s
	if s.result.Kind == classify.LFSBatch && (x.b == nil || !x.b.complete) {
		return // the question must repeat the body
	}
	a := id.Ask(x.r.Context(), s.target, s.rest, clock, func(ctx context.Context) identity.Answer {
		return x.g.ask(ctx, x.r, x.b, s, x.next)
	})
	if a == identity.Refused {
		id.Prove(s.cred, s.group, s.target, clock())
		x.g.remember(s)
	}
	// A public repository proves nothing; the forge itself may know the user,
	// and names whose secret this is.
	if x.g.verifies() && id.Account(s.cred).Zero() {
		x.g.askWho(x.r, s, x.g.whoIsHeader(x.r, s.cred), x.next)
	}
}

// learn tells identity how a proven credential fared.
func (x *exchange) learn(o admission.Outcome) {
	if x.s.state != classify.Proven {
		return
	}
	id, s := x.g.state.Identity, x.s
	switch {
	case x.out.status == http.StatusUnauthorized:
		id.Denied(s.cred, s.group, s.target, clock())
	case o == admission.OutcomeCompleted:
		id.Opened(s.cred, s.group, s.target, clock())
	}
}

// grant lets the caller finish what an accepted discovery request began. An
// LFS transfer keeps the grant of the push around it alive.
func (x *exchange) grant(status int) {
	if status != http.StatusOK {
		return
	}
	switch x.s.result.Kind {
	case classify.ReadDiscovery, classify.PushDiscovery:
		x.g.state.grants.give(x.g.grantKey(x.s), clock())
	case classify.LFSBatch, classify.LFSObject, classify.LFSLocks, classify.LFSVerify:
		x.g.state.grants.extend(x.g.grantKey(x.s), clock())
	}
}
