package gate

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// loginState is what logins share. Guarded by IngressState.mu.
type loginState struct {
	starts  startLane
	known   *admission.Bucket // callbacks that continue an admitted start
	unknown *admission.Bucket // all others
	held    int               // permits of unknown callbacks

	states map[admission.Key]time.Time // digest of a state seen in a redirect → until when
	order  []admission.Key             // oldest first; may hold used ones
}

// Bounds of remembered login states.
const (
	stateMax    = 10000
	stateFor    = 10 * time.Minute
	formMax     = 16 << 10 // body of a form_post callback that is looked into
	maxStateLen = 4096
)

func newLoginState() loginState { return loginState{states: map[admission.Key]time.Time{}} }

// sawState remembers the state of a redirect to an identity provider.
func (s *IngressState) sawState(k admission.Key, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.login
	l.states[k] = now.Add(stateFor)
	l.order = append(l.order, k)
	for len(l.order) > 0 && (len(l.order) > stateMax || now.After(l.states[l.order[0]])) {
		delete(l.states, l.order[0])
		l.order = l.order[1:]
	}
}

// callbackTicket is the budget part of an admitted callback.
type callbackTicket struct {
	known bool
	paid  bool // nothing was taken in dry run where something was short
	state admission.Key
	until time.Time
	token admission.CallerToken
}

// admitCallback takes a token of the caller's own budget and one of the budget
// that the callback's state belongs to, both or none. A seen state is used up.
// Unknown callbacks hold at most half the pool.
func (s *IngressState) admitCallback(p *admission.ClassPolicy, state, caller admission.Key, now time.Time) (t callbackTicket, _ *startRefusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.login
	if l.known == nil {
		l.known, l.unknown = admission.NewBucket(p.Bucket, now), admission.NewBucket(p.Bucket, now)
	}
	until, seen := l.states[state]
	t = callbackTicket{known: seen && !now.After(until) && state != 0, state: state, until: until}
	if !t.known {
		l.held++
	}
	bucket := l.bucketOf(t.known)
	bucket.Apply(p.Bucket, now)
	ref := &startRefusal{would: p.DryRun}
	own := s.controller.CallerShortage(admission.LoginCallback, caller, now, 1)
	wait := bucket.Shortage(now, 1)
	switch {
	case own > 0:
		ref.reason, ref.retry = admission.ReasonCallerBucket, retryAfter(own)
	case wait > 0:
		ref.reason, ref.retry = admission.ReasonClassBucket, retryAfter(wait)
	case !t.known && p.Max != admission.Unlimited && l.held > max(1, p.Max/2):
		ref.reason, ref.retry = admission.ReasonPoolFull, retryAfter(time.Second)
	default:
		t.token, _ = s.controller.TakeCaller(admission.LoginCallback, caller, now)
		bucket.Take(now, 1)
		t.paid = true
		if t.known {
			delete(l.states, state)
		}
		return t, nil
	}
	switch {
	case t.known && ref.would:
		delete(l.states, state)
	case !t.known && !ref.would:
		l.held--
	}
	return t, ref
}

func (l *loginState) bucketOf(known bool) *admission.Bucket {
	if known {
		return l.known
	}
	return l.unknown
}

// endCallback gives a callback's share back; refused also its tokens and state.
func (s *IngressState) endCallback(t callbackTicket, refused bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.login
	if !t.known {
		l.held--
	}
	if !refused {
		return
	}
	t.token.GiveBack()
	if t.paid {
		l.bucketOf(t.known).GiveBack(now, 1)
	}
	if t.known {
		l.states[t.state] = t.until
	}
}

// serveLogin limits the start and the callback of a login, each with its own
// pool and budget, and hands the request to next unchanged.
func (g *Gate) serveLogin(w http.ResponseWriter, r *http.Request, next Next, ro *route) error {
	if ro.class == admission.LoginStart || (ro.both && !isCallback(r)) {
		return g.serveStart(w, r, next)
	}
	return g.serveCallback(w, r, next)
}

// isCallback tells the two apart on a shared path.
func isCallback(r *http.Request) bool {
	q := queryValues(r.URL.RawQuery)
	return q.Has("state") && (q.Has("code") || q.Has("error"))
}

func (g *Gate) serveStart(w http.ResponseWriter, r *http.Request, next Next) error {
	st, p := g.state.Ingress, &g.state.Controller.Policy().Classes[admission.LoginStart]
	addr, group, caller := g.callerKeys(r)
	ticket, short := st.acquireStart(r.Context(), p, startClaim{group, caller, g.ownKey(addr, caller), g.callersAt(addr)})
	if short != nil && !short.would {
		g.state.Controller.CountRefusal(admission.LoginStart, short.reason)
		g.refuseLogin(w, r, admission.LoginStart, short.reason, short.retry)
		return nil
	}
	permit, ref := g.loginPermit(r, admission.LoginStart, group, short)
	if ref != nil {
		st.giveBackStart(ticket)
		g.refuseLogin(w, r, admission.LoginStart, ref.Reason, ref.RetryAfter)
		return nil
	}
	return g.runLogin(w, r, next, admission.LoginStart, permit)
}

func (g *Gate) serveCallback(w http.ResponseWriter, r *http.Request, next Next) error {
	st, p := g.state.Ingress, &g.state.Controller.Policy().Classes[admission.LoginCallback]
	state, ok := g.callbackState(w, r)
	if !ok {
		g.answerIngress(w, r, ingressAnswer{status: http.StatusBadRequest, class: admission.LoginCallback,
			reason: admission.ReasonSlowBody.String(), text: "gateway: the form arrives too slowly\n", broken: true})
		return nil
	}
	addr, group, caller := g.callerKeys(r)
	t, short := st.admitCallback(p, state, g.ownKey(addr, caller), clock())
	if short != nil && !short.would {
		g.state.Controller.CountRefusal(admission.LoginCallback, short.reason)
		g.refuseLogin(w, r, admission.LoginCallback, short.reason, short.retry)
		return nil
	}
	permit, ref := g.loginPermit(r, admission.LoginCallback, group, short)
	defer func() { st.endCallback(t, ref != nil, clock()) }()
	if ref != nil {
		g.refuseLogin(w, r, admission.LoginCallback, ref.Reason, ref.RetryAfter)
		return nil
	}
	return g.runLogin(w, r, next, admission.LoginCallback, permit)
}

// loginPermit takes a place for a request whose budgets are settled: they were
// charged, or short says what dry run lets pass.
func (g *Gate) loginPermit(r *http.Request, class admission.Class, group admission.Key, short *startRefusal) (admission.Permit, *admission.Refusal) {
	req := &admission.Request{Class: class, Group: group, Continuation: true}
	addr, _, caller := g.callerKeys(r)
	g.setCaller(req, addr, caller)
	if short != nil {
		req.Stopped = short.reason
	}
	permit, ref := g.state.Controller.Admit(r.Context(), req)
	if ref != nil && ref.Would {
		g.logWould(ref)
		return permit, nil
	}
	return permit, ref
}

// ownKey is whose own budget pays: nobody's where an address is many callers.
func (g *Gate) ownKey(addr netip.Addr, caller admission.Key) admission.Key {
	if within(g.opts.People.Shared, addr) {
		return 0
	}
	return caller
}

// callerKeys are the address, the group and the caller of r. A proxy that may not name its
// clients is a caller here: logins are limited behind it too.
func (g *Gate) callerKeys(r *http.Request) (addr netip.Addr, group, caller admission.Key) {
	addr, _ = g.opts.ClientIP(r)
	return addr, g.state.Keyer.Group(addr), g.state.Keyer.AddrBits(addr, g.opts.IPv4Bits, g.opts.IPv6Bits)
}

// callbackState is the digest of the callback's state, 0 when there is none.
// A small form (response_mode=form_post) is read and replayed. ok is false
// when its body did not come.
func (g *Gate) callbackState(w http.ResponseWriter, r *http.Request) (_ admission.Key, ok bool) {
	values := queryValues(r.URL.RawQuery)["state"]
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if r.Method == http.MethodPost && r.ContentLength > 0 && r.ContentLength <= formMax &&
		strings.EqualFold(strings.TrimSpace(media), "application/x-www-form-urlencoded") {
		_, dog := watch(r.Context(), w, limits{hard: 2 * time.Second})
		defer dog.stop()
		defer g.state.Ingress.enterReader(dog.cutWith, clock())()
		var arrived atomic.Int64
		body, err := readHookBody(w, r, dog, bodyPace{limit: formMax}, &arrived, nil)
		if err != nil {
			return 0, false
		}
		replayed(r, body)
		values = append(values, queryValues(string(body))["state"]...)
	}
	if len(values) != 1 || values[0] == "" || len(values[0]) > maxStateLen {
		return 0, true
	}
	return g.stateKey(values[0]), true
}

func (g *Gate) stateKey(state string) admission.Key {
	return g.state.Keyer.String(g.opts.Site + "\x00state\x00" + state)
}

// runLogin holds permit while next serves r and remembers the state of a
// redirect.
func (g *Gate) runLogin(w http.ResponseWriter, r *http.Request, next Next, class admission.Class, permit admission.Permit) (err error) {
	ctx, dog := watch(r.Context(), w, g.limits(class))
	out := newWriter(w, dog)
	out.onBegin = func(status int) {
		if status >= 300 && status < 400 {
			if state := redirectState(out.Header().Get("Location")); state != "" {
				g.state.Ingress.sawState(g.stateKey(state), clock())
			}
		}
	}
	defer func() {
		p := recover()
		cause := dog.stop()
		outcome := outcomeOf(out, g.failed(err, out), cause, r.Context(), p)
		permit.End(outcome)
		d := DecisionFrom(r.Context())
		d.Class, d.Outcome = class.String(), outcome.String()
		if p != nil {
			panic(p)
		}
		switch {
		case cause == nil:
		case out.started():
			out.breakOff()
		default:
			err = nil
			a := ingressAnswer{status: http.StatusGatewayTimeout, class: class, reason: "deadline",
				text: "gateway: the server behind did not answer in time\n", broken: true}
			if errors.Is(cause, errStalled) {
				a.status, a.reason, a.text = http.StatusRequestTimeout, "stalled", "gateway: the connection made no progress\n"
			}
			g.answerIngress(w, r, a)
		}
	}()
	inner := r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		inner.Body = &progressBody{ReadCloser: r.Body, dog: dog, declared: r.ContentLength}
	}
	return next(out, inner)
}

// redirectState is the state parameter of a redirect target.
func redirectState(location string) string {
	if location == "" || len(location) > 16<<10 || !strings.Contains(location, "state=") {
		return ""
	}
	u, err := url.Parse(location)
	if err != nil {
		return ""
	}
	values := u.Query()["state"]
	if len(values) != 1 || len(values[0]) > maxStateLen {
		return ""
	}
	return values[0]
}

// refuseLogin answers a start or a callback that found no budget or place.
func (g *Gate) refuseLogin(w http.ResponseWriter, r *http.Request, class admission.Class, reason admission.Reason, retry time.Duration) {
	if reason == admission.ReasonGone {
		d := DecisionFrom(r.Context())
		d.Class, d.Outcome, d.Reason = class.String(), "gone", reason.String()
		return
	}
	g.state.Ingress.counters.limit(class)
	text := "gateway: too many logins at once; try again in a moment\n"
	g.answerIngress(w, r, ingressAnswer{status: http.StatusServiceUnavailable, class: class, reason: reason.String(), text: text, retry: retry})
}
