package gate

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
)

// Serve decides about r and either answers it or hands it to next. The error
// is next's own: refusals are written here and return nil. A panic of next
// passes through unchanged after the permit has ended.
func (g *Gate) Serve(w http.ResponseWriter, r *http.Request, next Next) error {
	g.strip(r.Header)
	page := g.page(r)
	next = g.watchPage(page, next)
	if g.ingress != nil {
		if route, lookalike := g.ingress.match(r); lookalike {
			g.refuseShape(w, r, &classify.Result{Refuse: http.StatusBadRequest, Why: "non-canonical spelling of a configured path"})
			return nil
		} else if route != nil {
			return g.serveIngress(w, r, next, route)
		}
	}
	facts := classifyFacts(r)
	res := classify.Classify(g.opts.Profile, &facts)
	switch {
	case res.Refuse != 0:
		g.refuseShape(w, r, &res)
		return nil
	case res.Kind == classify.Other:
		return g.servePage(w, r, page, next)
	}
	s := g.subject(r, res)
	if res.Kind == classify.DumbHead && !g.state.Identity.DidAskRefs(s.caller, s.target, s.now) {
		return g.servePage(w, r, page, next)
	}
	forward(r, res.Path)
	if rule := g.rule(r); rule.Set && rule.Class != admission.Stream { // git never streams
		if rule.Exempt || rule.Class == admission.Other {
			return g.servePage(w, r, classify.PlainPage, next)
		}
		s.class, s.ruled = rule.Class, true
	}
	return g.serveGit(w, r, s, next)
}

// serveOther handles everything that is no git request and no configured path.
// Without a cap on class other it hands the request on untouched.
func (g *Gate) serveOther(w http.ResponseWriter, r *http.Request, next Next) error {
	DecisionFrom(r.Context()).Class = admission.Other.String()
	policy := g.state.Controller.Policy()
	if !limited(&policy.Classes[admission.Other]) {
		return g.passOther(w, r, next)
	}
	s := g.subject(r, classify.Result{})
	s.class = admission.Other
	permit, ok := g.admit(w, r, s)
	if !ok {
		return nil
	}
	return g.run(w, r, s, permit, nil, next)
}

// limited reports whether anything of p can refuse or end a request.
func limited(p *admission.ClassPolicy) bool {
	return p.Max != admission.Unlimited || p.Bucket.On() || p.Bytes.On() || p.CallerBucket.On() ||
		p.CallerMax != [admission.NumScopes]int{} || p.Deadline > 0 || p.Slow != admission.SlowPolicy{}
}

// serveGit admits a git request and runs it.
func (g *Gate) serveGit(w http.ResponseWriter, r *http.Request, s *subject, next Next) error {
	d := DecisionFrom(r.Context())
	d.Class, d.Repository = s.class.String(), s.result.Repository
	var b *body
	if buffersBody(s.result.Kind) && r.Body != nil && r.Body != http.NoBody {
		var err error
		if b, err = g.state.readBody(w, r, s.caller, g.callersAt(s.addr), g.state.Controller.Policy().Classes[s.class].Slow); err != nil {
			g.refuseBody(w, r, s, err)
			return nil
		}
		defer b.lease.close()
	}
	g.look(r, s, b)
	d.Class = s.class.String()
	if s.result.Kind == classify.DumbDiscovery || s.result.Kind == classify.ReadDiscovery {
		g.state.Identity.AskedRefs(s.caller, s.target, s.now)
	}
	permit, ok := g.admit(w, r, s)
	if !ok {
		return nil
	}
	return g.run(w, r, s, permit, b, next)
}

// look reads from a buffered body what the decision needs: the operation of an
// LFS batch, the shape of an upload-pack request, and whether a grant covers it.
func (g *Gate) look(r *http.Request, s *subject, b *body) {
	switch s.result.Kind {
	case classify.LFSBatch:
		s.target.Service = "lfs"
		if b != nil && b.complete {
			s.target.Service = lfsService(b.data)
		}
		g.place(s)
	case classify.LFSLocks:
		s.target.Service = "lfs-locks"
		g.place(s)
	case classify.ArchiveRPC:
		s.shape = shapeArchive
	case classify.ReadRPC:
		if b != nil {
			s.shape = shapeOf(b.data, r.Header.Get("Content-Encoding"), b.complete)
		}
	}
	if step := stepOf(s.result.Kind, s.shape, r.ContentLength); step != stepNone {
		s.resume = g.state.grants.use(g.grantKey(s), step, s.now)
	}
}

// buffersBody reports whether the body of a request is read before its permit
// is taken: the small ones. Pushes and objects stream.
func buffersBody(k classify.Kind) bool {
	switch k {
	case classify.ReadRPC, classify.LFSBatch, classify.LFSLocks, classify.LFSVerify, classify.ArchiveRPC:
		return true
	}
	return false
}

// admit asks for a permit and may wait for it. When there is none it has
// answered the request.
func (g *Gate) admit(w http.ResponseWriter, r *http.Request, s *subject) (admission.Permit, bool) {
	req := g.request(r, s)
	if c, ok := g.challenge(s); ok {
		// The challenge cannot be shed: without a place at once it is answered
		// from memory.
		req.HasAnswer = true
		if permit, ref := g.state.Controller.TryAdmit(req); ref == nil || ref.Would {
			g.logWould(ref)
			return permit, true
		}
		g.replay(w, r, c)
		return admission.Permit{}, false
	}
	permit, ref := g.state.Controller.Admit(r.Context(), req)
	switch {
	case ref == nil:
		return permit, true
	case ref.Would:
		g.logWould(ref)
		return permit, true
	case ref.Reason == admission.ReasonGone:
		d := DecisionFrom(r.Context())
		d.Outcome, d.Reason = "gone", ref.Reason.String()
		return permit, false
	}
	g.refuse(w, r, g.limitAnswer(ref, s.result.Kind))
	return permit, false
}

// logWould logs what dry run let pass; ref may be nil.
func (g *Gate) logWould(ref *admission.Refusal) {
	if ref != nil && ref.Would {
		g.log(Event{Class: ref.Class, Reason: ref.Reason.String(), Retry: ref.RetryAfter, Would: true})
	}
}

func (g *Gate) log(e Event) {
	if g.opts.Log != nil {
		g.opts.Log(e)
	}
}

// refuseBody answers a request whose body could not be read in time or within
// the account.
func (g *Gate) refuseBody(w http.ResponseWriter, r *http.Request, s *subject, err error) {
	a := answer{class: s.class, lfs: isLFS(s.result.Kind)}
	reason := admission.ReasonBodyBudget
	switch {
	case errors.Is(err, errBodyCaller):
		a.status, a.retry = http.StatusTooManyRequests, 2*time.Second
		a.text = "gateway: too many request bodies from you at once; try again in 2 s"
	case errors.Is(err, errBodyShared):
		a.status, a.retry = http.StatusServiceUnavailable, 5*time.Second
		a.text = "gateway: too many request bodies at once; try again in 5 s"
	case errors.Is(err, errBodySlow):
		reason = admission.ReasonSlowBody
		a.status, a.text = http.StatusRequestTimeout, "gateway: the request body arrives too slowly"
		w.Header().Set("Connection", "close")
	default:
		DecisionFrom(r.Context()).Outcome = "gone"
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusBadRequest) // nobody is there to read it
		return
	}
	if a.lfs && a.status == http.StatusServiceUnavailable {
		a.status = http.StatusTooManyRequests
	}
	a.reason = reason.String()
	g.state.Controller.CountRefusal(s.class, reason)
	g.refuse(w, r, a)
}

// run holds permit while next serves r, and ends it exactly once.
func (g *Gate) run(w http.ResponseWriter, r *http.Request, s *subject, permit admission.Permit, b *body, next Next) (err error) {
	client, base := r.Context(), r.Context()
	if s.abandonable(b) {
		base = context.WithoutCancel(client)
	}
	ctx, dog := watch(base, w, g.limits(s.class))
	dog.taken = g.taken(r)
	x := &exchange{g: g, s: s, r: r, b: b, next: next, out: newWriter(w, dog), permit: permit}
	x.prepare(dog)
	defer g.state.slow.enter(s.class, dog, g.state.Controller)()
	if s.abandonable(b) {
		defer x.abandonWith(client, dog)()
	}
	inner := r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		upload := &progressBody{ReadCloser: r.Body, dog: dog, declared: r.ContentLength}
		inner.Body = upload
		if r.ProtoMajor == 1 && r.ContentLength != 0 && (b == nil || !b.complete) {
			x.out.upload = upload
		}
	}
	defer func() {
		p := recover()
		cause := x.finish(err, dog, p)
		if p != nil && !(x.out.replaced && p == http.ErrAbortHandler) {
			panic(p)
		}
		if x.out.replaced {
			err = nil
			return
		}
		switch {
		case cause == nil:
		case !x.out.started():
			err = nil
			g.answerCut(w, r, s, cause)
		default:
			x.out.breakOff()
		}
	}()
	return next(x.out, inner)
}

// taken is how to ask what the client has taken, or nil. Streams of HTTP/2 and
// HTTP/3 share a connection, so that it would say nothing about one of them.
func (g *Gate) taken(r *http.Request) func() (int64, bool) {
	if g.opts.Taken == nil || r.ProtoMajor != 1 {
		return nil
	}
	return g.opts.Taken(r)
}

// prepare wires the writer's moments.
func (x *exchange) prepare(dog *watchdog) {
	x.out.onBegin = x.grant
	x.out.onStream = func() bool { return x.stream(dog) }
	if x.g.opts.StreamRefuses {
		x.before = x.out.ResponseWriter.Header().Clone()
	}
	if x.s.holdsAnswer() || x.namesUser() {
		x.out.hold(x.judge)
	}
}

// finish ends the permit with the outcome of the request and returns the
// gate's own reason for ending it, if there was one.
func (x *exchange) finish(err error, dog *watchdog, p any) (cause error) {
	if dog.cut() == nil {
		x.out.finish(p == nil)
	}
	cause = dog.stop()
	outcome := outcomeOf(x.out, x.g.failed(err, x.out), cause, x.r.Context(), p)
	end := func() { x.permit.End(outcome) }
	if x.left != nil {
		left, cut := x.g.state.abandoned.done(x.left)
		if left {
			outcome = admission.OutcomeAbandoned
		}
		if cut {
			permit := x.permit
			time.AfterFunc(cutHold, func() { permit.End(admission.OutcomeAbandoned) })
			end = func() {}
		}
	}
	end()
	x.learn(outcome)
	if d := DecisionFrom(x.r.Context()); d.Outcome == "" {
		d.Outcome = outcome.String()
	}
	return cause
}

// limits are the times of a request of class c.
func (g *Gate) limits(c admission.Class) limits {
	p := &g.state.Controller.Policy().Classes[c]
	l := limits{hard: p.Deadline, slow: p.Slow}
	if c == admission.Discovery || c == admission.Candidate {
		l.hard, l.first = 0, p.Deadline
	}
	return l
}

// failed is the status that counts for the outcome.
func (g *Gate) failed(err error, out *writer) int {
	if err == nil {
		return out.status
	}
	if s := g.opts.StatusOf(err); s != 0 {
		return s
	}
	return http.StatusInternalServerError
}

// outcomeOf names how a request ended. The gate's own reasons win over the
// client's, and the client's over the upstream's.
func outcomeOf(out *writer, status int, cause error, client context.Context, p any) admission.Outcome {
	switch {
	case errors.Is(cause, errStalled):
		return admission.OutcomeStalled
	case errors.Is(cause, errSlow), errors.Is(cause, errStreamsFull):
		return admission.OutcomeDisplaced
	case cause != nil:
		return admission.OutcomeDeadline
	case client.Err() != nil:
		return admission.OutcomeClientGone
	case p != nil && p != http.ErrAbortHandler:
		return admission.OutcomePanic
	case p != nil, status >= 500, status == 0 && !out.hijacked:
		return admission.OutcomeUpstreamFailed
	case status >= 400:
		return admission.OutcomeUpstreamRefused
	}
	return admission.OutcomeCompleted
}
