package gate

import (
	"context"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/logout"
)

// LogoutOutcome is how a request on a logout path ended. Every one is counted
// under exactly one. The set is closed.
type LogoutOutcome uint8

// The outcomes.
const (
	LogoutLookalike       LogoutOutcome = iota // a spelling of the path that is not the path
	LogoutShape                                // request, form, token or claims malformed: costs nothing
	LogoutBody                                 // the body came too slowly or broke off
	LogoutForged                               // signature wrong: spends the forged budget
	LogoutForgedLimited                        // not verified: the forged budget is spent and this group spent of it
	LogoutNoKeys                               // the issuer's keys are not available
	LogoutLimited                              // no budget or no place within the wait
	LogoutDelivered                            // the relying party answered 2xx or 3xx
	LogoutUpstreamRefused                      // … 4xx
	LogoutUpstreamFailed                       // … 5xx, or it could not be reached
	LogoutDeadline                             // the deadline passed first
	LogoutGone                                 // the provider left first
	LogoutPanic                                // the handler behind panicked
	numLogoutOutcomes
)

var logoutOutcomeNames = [numLogoutOutcomes]string{
	"lookalike", "shape", "body", "forged", "forged_limited", "no_keys", "limited", "delivered",
	"upstream_refused", "upstream_failed", "deadline", "gone", "panic",
}

// String returns the name used in snapshots and logs.
func (o LogoutOutcome) String() string {
	if o < numLogoutOutcomes {
		return logoutOutcomeNames[o]
	}
	return "invalid"
}

// logoutState is what logouts share. Guarded by IngressState.mu.
type logoutState struct {
	forged  *admission.Bucket // nil until first used
	forgers knownSet          // groups whose tokens failed lately
	senders knownSet          // groups whose logouts a relying party accepted
}

func newLogoutState() logoutState {
	return logoutState{forgers: newKnownSet(), senders: newKnownSet()}
}

// forgedSpent reports whether a token of this group is refused without being
// verified: the forged budget is spent and the group had a part in that.
func (s *IngressState) forgedSpent(group admission.Key, p admission.BucketPolicy, now time.Time) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := s.forgedLocked(p, now).Shortage(now, 1)
	return wait, wait > 0 && s.logouts.forgers.has(group, now)
}

// forge counts a token whose signature failed.
func (s *IngressState) forge(group admission.Key, p admission.BucketPolicy, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgedLocked(p, now).Take(now, 1)
	s.logouts.forgers.add(group, now)
}

func (s *IngressState) forgedLocked(p admission.BucketPolicy, now time.Time) *admission.Bucket {
	if s.logouts.forged == nil {
		s.logouts.forged = admission.NewBucket(p, now)
	}
	s.logouts.forged.Apply(p, now)
	return s.logouts.forged
}

// logoutExchange is one logout request.
type logoutExchange struct {
	g     *Gate
	st    *IngressState
	c     *LogoutConfig
	w     http.ResponseWriter
	r     *http.Request
	ctx   context.Context
	dog   *watchdog
	group admission.Key
	addr  netip.Addr
	now   time.Time
	token *logout.Token
	body  []byte
}

// serveLogout checks the shape, then the signature where keys are configured,
// and only then takes budget and permit. The relying party's status passes.
func (g *Gate) serveLogout(w http.ResponseWriter, r *http.Request, next Next, c *LogoutConfig) {
	x := &logoutExchange{g: g, st: g.state.Ingress, c: c, w: w, r: r, now: clock()}
	x.addr, _ = g.opts.ClientIP(r)
	x.group = g.state.Keyer.Group(x.addr)
	outcome := LogoutPanic
	defer func() {
		p := recover()
		if p == http.ErrAbortHandler {
			outcome = LogoutUpstreamFailed
		}
		x.st.counters.logouts[outcome].Add(1)
		if p != nil {
			panic(p)
		}
	}()
	outcome = x.run(next)
}

func (x *logoutExchange) policy() *admission.ClassPolicy {
	return &x.g.state.Controller.Policy().Classes[admission.Logout]
}

func (x *logoutExchange) run(next Next) LogoutOutcome {
	if bad := x.c.Checker.CheckHead(x.r); bad != nil {
		return x.malformed(bad, false)
	}
	x.ctx, x.dog = watch(x.r.Context(), x.w, limits{hard: x.policy().Deadline})
	defer x.dog.stop()
	if o, ok := x.readAndVerify(); !ok {
		return o
	}
	permit, ok := x.admit()
	if !ok {
		return LogoutLimited
	}
	outcome := admission.OutcomePanic
	defer func() { permit.End(outcome) }()
	out := newWriter(x.w, x.dog)
	err := next(out, replayed(x.r.WithContext(x.ctx), x.body))
	o := x.settle(out, err)
	outcome = logoutPermitOutcome[o]
	return o
}

var logoutPermitOutcome = [numLogoutOutcomes]admission.Outcome{
	LogoutUpstreamRefused: admission.OutcomeUpstreamRefused, LogoutUpstreamFailed: admission.OutcomeUpstreamFailed,
	LogoutDeadline: admission.OutcomeDeadline, LogoutGone: admission.OutcomeClientGone,
}

// readAndVerify does everything that needs no budget. ok is false when the
// request was answered.
func (x *logoutExchange) readAndVerify() (o LogoutOutcome, ok bool) {
	defer x.st.enterReader(x.dog.cutWith, x.now)()
	var arrived atomic.Int64
	body, err := readHookBody(x.w, x.r, x.dog, bodyPace{logout.MaxBody, x.policy().Slow}, &arrived, nil)
	if err != nil {
		x.answer(ingressAnswer{status: http.StatusBadRequest, reason: LogoutBody.String(), text: invalidRequest, json: true, broken: true})
		return LogoutBody, false
	}
	token, bad := x.c.Checker.CheckBody(body, x.now)
	if bad != nil {
		return x.malformed(bad, true), false
	}
	x.token, x.body = token, body
	if !token.Verifiable() {
		return 0, true
	}
	if wait, spent := x.st.forgedSpent(x.group, x.c.Forged, x.now); spent {
		x.overloaded(LogoutForgedLimited, retryAfter(wait))
		return LogoutForgedLimited, false
	}
	switch bad := token.Verify(x.ctx, x.now); {
	case bad == nil:
		return 0, true
	case bad.Reason() == logout.NoKeys:
		x.overloaded(LogoutNoKeys, time.Second)
		return LogoutNoKeys, false
	}
	x.st.forge(x.group, x.c.Forged, x.now)
	x.answer(ingressAnswer{status: http.StatusBadRequest, reason: LogoutForged.String(), text: invalidRequest, json: true, bodyRead: true})
	return LogoutForged, false
}

// admit takes budget and place, waiting as the class allows. Where no
// signature can be checked, a caller group whose logouts no relying party has
// accepted leaves the last quarter of the budget to those that have one.
func (x *logoutExchange) admit() (admission.Permit, bool) {
	c := x.g.state.Controller
	req := &admission.Request{Class: admission.Logout, Now: clock(), Group: x.group}
	if !x.token.Verifiable() {
		wait := x.st.strangerLogout(x.group, inside(x.addr, x.g.ingress.senders), x.now)
		switch {
		case wait > 0 && x.policy().DryRun:
			req.Stopped = admission.ReasonClassBucket
		case wait > 0:
			c.CountRefusal(admission.Logout, admission.ReasonClassBucket)
			x.overloaded(LogoutLimited, retryAfter(wait))
			return admission.Permit{}, false
		}
	}
	x.g.setCaller(req, x.addr, x.g.state.Keyer.AddrBits(x.addr, x.g.opts.IPv4Bits, x.g.opts.IPv6Bits))
	permit, ref := c.Admit(x.ctx, req)
	if ref == nil || ref.Would {
		x.g.logWould(ref)
		return permit, true
	}
	x.overloaded(LogoutLimited, time.Second)
	return admission.Permit{}, false
}

func (s *IngressState) strangerLogout(group admission.Key, listed bool, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if listed || !s.logouts.senders.any(now) || s.logouts.senders.has(group, now) {
		return 0
	}
	requests, _ := s.controller.Levels(admission.Logout, now)
	return floorWait(s.controller.Policy().Classes[admission.Logout].Bucket, requests, 1)
}

func (x *logoutExchange) settle(out *writer, err error) LogoutOutcome {
	cut, gone := x.dog.cut() != nil, x.r.Context().Err() != nil
	silent := !out.started()
	if silent {
		status := http.StatusBadGateway
		if cut || (err != nil && x.g.opts.StatusOf(err) == http.StatusGatewayTimeout) {
			status = http.StatusGatewayTimeout
		}
		x.answer(ingressAnswer{status: status, reason: LogoutUpstreamFailed.String(), text: "relying party did not answer", bodyRead: true, broken: cut})
	}
	switch {
	case cut:
		return LogoutDeadline
	case gone:
		return LogoutGone
	case err != nil, silent, out.status >= 500:
		return LogoutUpstreamFailed
	case out.status >= 400:
		return LogoutUpstreamRefused
	}
	if out.status == http.StatusOK || out.status == http.StatusNoContent {
		x.st.mu.Lock()
		x.st.logouts.senders.add(x.group, x.now)
		x.st.mu.Unlock()
	}
	return LogoutDelivered
}

// invalidRequest is the body that the standard asks for.
const invalidRequest = `{"error":"invalid_request"}`

func (x *logoutExchange) malformed(bad *logout.Refusal, bodyRead bool) LogoutOutcome {
	a := ingressAnswer{status: bad.Status(), reason: bad.Reason().String(), text: invalidRequest, json: true, bodyRead: bodyRead}
	if bad.Reason() == logout.BadMethod {
		a.allow = http.MethodPost
	}
	x.answer(a)
	return LogoutShape
}

func (x *logoutExchange) overloaded(o LogoutOutcome, retry time.Duration) {
	x.st.counters.limit(admission.Logout)
	x.answer(ingressAnswer{status: http.StatusServiceUnavailable, reason: o.String(), text: "logout overloaded", retry: retry, bodyRead: true})
}

func (x *logoutExchange) answer(a ingressAnswer) {
	a.class = admission.Logout
	x.g.answerIngress(x.w, x.r, a)
}
