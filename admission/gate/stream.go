package gate

import (
	"context"
	"errors"
	"mime"
	"net/http"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
)

// isStream reports whether the upstream's own answer makes the request a
// stream: a protocol switch, server-sent events or gRPC. What the client asks
// for is never a reason.
func isStream(status int, h http.Header) bool {
	if status == http.StatusSwitchingProtocols {
		return true
	}
	if status < 200 || status > 299 {
		return false
	}
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return false
	}
	switch t {
	case "text/event-stream", "application/grpc", "application/grpc+proto", "application/grpc+json":
		return true
	}
	return false
}

// passOther hands a request on that nothing limits. What it turns into is
// counted all the same: an answer that is a stream takes a place of class
// stream, or, where there is none, goes on without one unless the operator has
// capped streams.
func (g *Gate) passOther(w http.ResponseWriter, r *http.Request, next Next) (err error) {
	var permit admission.Permit
	inner, stop := r, func() {}
	var before http.Header
	if g.opts.StreamRefuses {
		ctx, cancel := context.WithCancel(r.Context())
		inner, stop, before = r.WithContext(ctx), cancel, w.Header().Clone()
		defer cancel()
	}
	o := &observer{ResponseWriter: w}
	o.seen = func(status int, h http.Header) bool {
		if !isStream(status, h) {
			return true
		}
		s := g.subject(r, classify.Result{})
		s.class = admission.Other
		var ref *admission.Refusal
		if permit, ref = g.enterStream(r, s); ref != nil {
			g.replaceAnswer(w, r, before, ref)
			stop()
			return false
		}
		return true
	}
	defer func() {
		p := recover()
		permit.End(streamOutcome(r.Context(), err, p))
		if o.replaced && (p == nil || p == http.ErrAbortHandler) {
			err = nil
			return
		}
		if p != nil {
			panic(p)
		}
	}()
	return next(o, inner)
}

// enterStream takes a place of class stream for a request that had no permit.
// Without one it returns an ended permit, or the refusal where streams are
// capped.
func (g *Gate) enterStream(r *http.Request, s *subject) (admission.Permit, *admission.Refusal) {
	c := g.state.Controller
	if g.opts.StreamRefuses {
		s.class = admission.Stream
		permit, ref := c.TryAdmit(g.request(r, s))
		if ref != nil && !ref.Would {
			return permit, ref
		}
		g.logWould(ref)
		return permit, nil
	}
	permit, ref := c.TryAdmit(g.request(r, s))
	if ref == nil && permit.Move(admission.Stream) {
		DecisionFrom(r.Context()).Class = admission.Stream.String()
		return permit, nil
	}
	permit.End(admission.OutcomeMoved)
	return admission.Permit{}, nil
}

// replaceAnswer refuses a request in place of the answer that its upstream has
// begun. before is the header as it was when the request came in.
func (g *Gate) replaceAnswer(w http.ResponseWriter, r *http.Request, before http.Header, ref *admission.Refusal) {
	h := w.Header()
	clear(h)
	for k, v := range before {
		h[k] = v
	}
	g.refuse(w, r, g.limitAnswer(ref, classify.Other))
	_ = http.NewResponseController(w).Flush()
}

func streamOutcome(client context.Context, err error, p any) admission.Outcome {
	switch {
	case p != nil && p != http.ErrAbortHandler:
		return admission.OutcomePanic
	case client.Err() != nil:
		return admission.OutcomeClientGone
	case err != nil || p != nil:
		return admission.OutcomeUpstreamFailed
	}
	return admission.OutcomeCompleted
}

// errStreamsFull ends a request whose stream found no place.
var errStreamsFull = errors.New("no place for a stream")

// stream moves a request that became a stream into class stream, which frees
// its old permit; git operations and LFS transfers never move. It returns false
// when streams are capped and full: then it has refused the request.
func (x *exchange) stream(dog *watchdog) bool {
	switch {
	case x.s.class.Git(), x.s.class == admission.LFS, x.permit.Class() == admission.Stream:
		return true
	case x.permit.Move(admission.Stream):
		dog.endless()
		return true
	case !x.g.opts.StreamRefuses:
		return true
	}
	place := *x.s
	place.class = admission.Stream
	permit, ref := x.g.state.Controller.TryAdmit(x.g.request(x.r, &place))
	if ref == nil || ref.Would {
		x.permit.End(admission.OutcomeMoved)
		x.permit = permit
		dog.endless()
		return true
	}
	x.g.replaceAnswer(x.out.ResponseWriter, x.r, x.before, ref)
	dog.cutWith(errStreamsFull)
	return false
}
