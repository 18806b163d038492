package gate

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/webhook"
)

// serveIngress answers a request on a configured path, or hands it to next
// once it passed. Errors of next on webhook and logout paths are answered
// here, so that no error log carries such a request.
func (g *Gate) serveIngress(w http.ResponseWriter, r *http.Request, next Next, ro *route) error {
	switch {
	case ro.hook != nil:
		g.serveHook(w, r, next, ro.hook)
		return nil
	case ro.logout != nil:
		g.serveLogout(w, r, next, ro.logout)
		return nil
	}
	return g.serveLogin(w, r, next, ro)
}

// hookExchange is one delivery after its headers passed.
type hookExchange struct {
	g     *Gate
	st    *IngressState
	h     *hook
	w     http.ResponseWriter
	r     *http.Request
	head  *webhook.Head
	ctx   context.Context
	dog   *watchdog
	hold  *hookHold
	group admission.Key
	now   time.Time

	delivery *webhook.Delivery // once the body was verified
	status   int               // of the answer that the gate or the receiver gave
	cause    error             // why it could not be kept
}

// serveHook checks a delivery's headers, takes budget and permit in one
// decision, reads the body within bounds, verifies it and commits it. The
// permit is held from before the body until the commit's result.
func (g *Gate) serveHook(w http.ResponseWriter, r *http.Request, next Next, h *hook) {
	x := &hookExchange{g: g, st: g.state.Ingress, h: h, w: w, r: r, now: clock()}
	head, bad := h.verifier.CheckHead(r, x.now)
	if bad != nil {
		x.refuse(bad, false)
		return
	}
	x.head = head
	x.ctx, x.dog = watch(r.Context(), w, limits{hard: g.hookDeadline(h)})
	defer x.dog.stop()
	if !x.admit() {
		return
	}
	outcome := HookPanic
	defer func() {
		p := recover()
		if p == http.ErrAbortHandler {
			outcome = x.aborted()
		}
		x.finish(outcome)
		if p != nil {
			panic(p)
		}
	}()
	outcome = x.run(next)
}

// hookDeadline is the shortest of the class's deadline, the profile's and the
// hook's own.
func (g *Gate) hookDeadline(h *hook) time.Duration {
	d := h.Profile.Deadline
	for _, other := range []time.Duration{h.Deadline, g.state.Controller.Policy().Classes[admission.Webhook].Deadline} {
		if other > 0 {
			d = min(d, other)
		}
	}
	return d
}

func (x *hookExchange) admit() bool {
	g, r := x.g, x.r
	addr, isCaller := g.opts.ClientIP(r)
	x.group = g.state.Keyer.Group(addr)
	q := &hookClaim{
		now: x.now, group: x.group, hook: x.h, own: g.opts.Site + "\x00" + x.h.Path,
		charge: x.head.Charge(r.ContentLength),
		known:  inside(addr, g.ingress.senders, x.h.Senders),
		listed: len(g.ingress.senders)+len(x.h.Senders) > 0,
	}
	if isCaller {
		var who admission.Request
		g.setCaller(&who, addr, g.state.Keyer.AddrBits(addr, g.opts.IPv4Bits, g.opts.IPv6Bits))
		q.keys = who.Keys
	}
	admit := func() (*hookHold, *hookRefusal) { return x.st.admitHook(q, x.dog.cutWith) }
	if x.h.Commit != nil {
		admit = func() (*hookHold, *hookRefusal) { return x.st.admitHookWaiting(x.ctx, q, x.dog.cutWith) }
	}
	hold, ref := admit()
	if ref != nil {
		x.st.counters.limit(admission.Webhook)
		x.overloaded(ref.outcome, ref.retry, false)
		x.st.counters.hooks[ref.outcome].Add(1)
		x.report(ref.outcome)
		return false
	}
	x.hold = hold
	g.logWould(hold.would)
	return true
}

// run reads, verifies and commits, and answers what it refuses.
func (x *hookExchange) run(next Next) HookOutcome {
	body, err := readHookBody(x.w, x.r, x.dog, bodyPace{x.head.Limit(), x.g.state.Controller.Policy().Classes[admission.Webhook].Slow}, &x.hold.arrived, &x.st.buffers)
	if err != nil {
		return x.bodyFailed(err)
	}
	if !x.st.bodyComplete(x.hold) {
		x.st.buffers.give(body)
		return x.bodyFailed(errDisplaced)
	}
	d, bad := x.head.Verify(body)
	if bad != nil {
		x.st.buffers.give(body)
		x.answer(ingressAnswer{status: bad.Status(), reason: bad.Reason().String(), text: bad.Error(), bodyRead: true})
		return hookOutcomeOf(bad.Reason())
	}
	x.delivery = &d
	if d.Verified {
		x.st.verified(x.group, x.now)
	}
	DecisionFrom(x.r.Context()).Repository = d.Repository
	if x.h.Commit != nil {
		return x.keep(d, body)
	}
	return x.forward(next, body)
}

// bodyFailed answers a request whose body did not come in time or in size.
func (x *hookExchange) bodyFailed(err error) HookOutcome {
	switch {
	case errors.Is(err, errDisplaced):
		x.st.counters.limit(admission.Webhook)
		x.overloaded(HookDisplaced, time.Second, true)
		return HookDisplaced
	case errors.Is(err, errBodyTooLarge):
		x.answer(ingressAnswer{status: http.StatusRequestEntityTooLarge, reason: HookBodyTooLarge.String(), text: "delivery too large"})
		return HookBodyTooLarge
	case errors.Is(err, errDeadline): // it came as fast as it must; there was no time for all of it
		x.answer(ingressAnswer{status: http.StatusServiceUnavailable, reason: HookDeadline.String(), text: overloaded, retry: time.Second, broken: true})
		return HookDeadline
	case errors.Is(err, errBodySlow):
		x.answer(ingressAnswer{status: http.StatusRequestTimeout, reason: HookSlow.String(), text: "delivery arrives too slowly", broken: true})
		return HookSlow
	}
	x.answer(ingressAnswer{status: http.StatusBadRequest, reason: HookBodyBroken.String(), text: "delivery broke off", broken: true})
	return HookBodyBroken
}

// forward hands the verified bytes to next and waits for its answer.
func (x *hookExchange) forward(next Next, body []byte) HookOutcome {
	out := newWriter(x.w, x.dog)
	lent := &lentBody{body: body}
	err := next(out, replayedFrom(x.r.WithContext(x.ctx), int64(len(body)), lent.open))
	lent.takeBack()
	x.st.buffers.give(body)
	return x.settle(out, err)
}

// settle names what became of the delivery and answers when next did not: a
// handler that returns without an answer must never become a 200, which would
// tell the sender that somebody took it.
func (x *hookExchange) settle(out *writer, err error) HookOutcome {
	cut, gone := x.dog.cut() != nil, x.r.Context().Err() != nil
	x.status = out.status
	silent := !out.started()
	if silent {
		x.upstreamFailed(cut, err)
	}
	switch {
	case cut:
		return HookDeadline
	case gone:
		return HookGone
	case err != nil, silent, out.status >= 500:
		return HookUpstreamFailed
	case out.status >= 400:
		return HookUpstreamRefused
	}
	return HookDelivered
}

// upstreamFailed answers for a worker that did not: 504 when it was too slow,
// 503 when it cannot be reached, 502 for any other error of the handlers
// behind.
func (x *hookExchange) upstreamFailed(cut bool, err error) {
	status := http.StatusInternalServerError // next said nothing
	if err != nil {
		status = x.g.opts.StatusOf(err)
	}
	switch {
	case cut, status == http.StatusGatewayTimeout:
		x.answer(ingressAnswer{status: http.StatusGatewayTimeout, reason: HookDeadline.String(), text: "webhook receiver too slow", bodyRead: true, broken: cut})
	case status == 0, status == http.StatusBadGateway, status == http.StatusServiceUnavailable:
		x.overloaded(HookUpstreamFailed, 5*time.Second, true)
	default:
		x.answer(ingressAnswer{status: http.StatusBadGateway, reason: HookUpstreamFailed.String(), text: "webhook receiver failed", bodyRead: true})
	}
}

// keep hands the delivery to the hook's Committer and writes its answer.
func (x *hookExchange) keep(d webhook.Delivery, body []byte) HookOutcome {
	a, err := x.h.Commit.Commit(x.ctx, &VerifiedDelivery{
		Delivery: d, Hook: x.h.Path, Path: x.r.URL.EscapedPath(), Query: x.r.URL.RawQuery,
		Header: x.r.Header.Clone(), Body: body, Received: x.now,
	})
	switch {
	case err != nil && x.dog.cut() != nil:
		x.upstreamFailed(true, err)
		return HookDeadline
	case err != nil:
		x.cause = err
		x.overloaded(HookKeepFailed, 5*time.Second, true)
		return HookKeepFailed
	}
	h := x.w.Header()
	for name, values := range a.Header {
		h[name] = append([]string(nil), values...)
	}
	x.status = a.Status
	x.w.WriteHeader(a.Status)
	_, _ = x.w.Write(a.Body)
	switch {
	case a.Kept:
		return HookKept
	case a.Status >= 500:
		return HookUpstreamFailed
	case a.Status >= 400:
		return HookUpstreamRefused
	}
	return HookDelivered
}

// aborted names a request that the handler behind broke off after its answer
// had begun.
func (x *hookExchange) aborted() HookOutcome {
	switch {
	case x.dog.cut() != nil:
		return HookDeadline
	case x.r.Context().Err() != nil:
		return HookGone
	}
	return HookUpstreamFailed
}

// finish ends the permit with the matching outcome and counts.
func (x *hookExchange) finish(o HookOutcome) {
	x.st.end(x.hold, permitOutcome[o])
	x.st.counters.hooks[o].Add(1)
	x.report(o)
	if d := DecisionFrom(x.r.Context()); d.Outcome == "" {
		d.Class, d.Outcome = admission.Webhook.String(), o.String()
	}
}

// permitOutcome maps the outcomes that can end a permit; the rest completed.
var permitOutcome = [numHookOutcomes]admission.Outcome{
	HookDisplaced: admission.OutcomeDisplaced, HookSlow: admission.OutcomeStalled,
	HookBodyBroken: admission.OutcomeClientGone, HookGone: admission.OutcomeClientGone,
	HookUpstreamRefused: admission.OutcomeUpstreamRefused, HookUpstreamFailed: admission.OutcomeUpstreamFailed,
	HookDeadline: admission.OutcomeDeadline, HookPanic: admission.OutcomePanic,
	HookKeepFailed: admission.OutcomeUpstreamFailed,
}

// refuse answers a header refusal, which spends nothing.
func (x *hookExchange) refuse(bad *webhook.Refusal, bodyRead bool) {
	a := ingressAnswer{status: bad.Status(), reason: bad.Reason().String(), text: bad.Error(), bodyRead: bodyRead}
	if bad.Reason() == webhook.BadMethod {
		a.allow = http.MethodPost
	}
	x.answer(a)
	x.st.counters.hooks[hookOutcomeOf(bad.Reason())].Add(1)
	x.report(hookOutcomeOf(bad.Reason()))
}

func (x *hookExchange) overloaded(o HookOutcome, retry time.Duration, bodyRead bool) {
	x.answer(ingressAnswer{status: http.StatusServiceUnavailable, reason: o.String(), text: overloaded, retry: retry, bodyRead: bodyRead, broken: o == HookDisplaced})
}

func (x *hookExchange) answer(a ingressAnswer) {
	a.class, x.status = admission.Webhook, a.status
	x.g.answerIngress(x.w, x.r, a)
}
