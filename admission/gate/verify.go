package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/identity"
)

// Bounds of verifying: what goes at each costs a question or a place, never a
// proof.
const (
	strangersMax  = 10_000
	strangerKept  = time.Minute     // a credential that the forge refused is not asked about again
	unknownKept   = 5 * time.Second // nor one that it said nothing about
	verifyFlights = 64
	verifyWaiting = 64 // requests that share one question
)

// verdict is what the forge says about one credential.
type verdict uint8

const (
	verdictUnknown verdict = iota // 403, 5xx, a time-out, or a forge that lets strangers in
	verdictStranger
	verdictGenuine
)

// verifyKey names a question. The group belongs to it, because a proof does:
// nobody gets one from a question of another network.
type verifyKey struct {
	site   string
	secret identity.Digest
	group  admission.Key
}

// verifier shares and remembers questions about credentials. Safe for
// concurrent use.
//
// mu protects everything below it and is not held while a question is asked.
// strangers holds at most strangersMax entries, the oldest goes first; order
// lists its keys by age.
type verifier struct {
	mu        sync.Mutex
	strangers map[verifyKey]time.Time // → when it may be asked about again
	order     []verifyKey
	flights   map[verifyKey]*verifyFlight

	asked   [verdictGenuine + 1]uint64
	noPlace uint64
}

type verifyFlight struct {
	done      chan struct{}
	genuine   bool // set before done is closed
	followers int
}

func newVerifier() *verifier {
	return &verifier{strangers: map[verifyKey]time.Time{}, flights: map[verifyKey]*verifyFlight{}}
}

// join returns the question to lead or to follow; nil when nothing is to be
// asked now.
func (v *verifier) join(k verifyKey, now time.Time) (f *verifyFlight, lead bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if again, ok := v.strangers[k]; ok && now.Before(again) {
		return nil, false
	}
	if f = v.flights[k]; f != nil {
		if f.followers >= verifyWaiting {
			return nil, false
		}
		f.followers++
		return f, false
	}
	if len(v.flights) >= verifyFlights {
		return nil, false
	}
	f = &verifyFlight{done: make(chan struct{})}
	v.flights[k] = f
	return f, true
}

// finish ends a question. asked is false when there was no place to ask on.
func (v *verifier) finish(k verifyKey, f *verifyFlight, said verdict, asked bool, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f.genuine = said == verdictGenuine
	delete(v.flights, k)
	close(f.done)
	if !asked {
		v.noPlace++
		return
	}
	v.asked[said]++
	switch said {
	case verdictGenuine:
		delete(v.strangers, k) // its key stays in order until its turn comes
	case verdictStranger:
		v.putLocked(k, now.Add(strangerKept))
	default:
		v.putLocked(k, now.Add(unknownKept))
	}
}

func (v *verifier) putLocked(k verifyKey, until time.Time) {
	if _, again := v.strangers[k]; !again {
		for len(v.order) >= strangersMax {
			delete(v.strangers, v.order[0])
			v.order = v.order[1:]
		}
		v.order = append(v.order, k)
	}
	v.strangers[k] = until
}

// VerifySnapshot counts what the forge was asked.
type VerifySnapshot struct {
	Genuine  uint64
	Stranger uint64
	Unknown  uint64
	NoPlace  uint64 // not asked: candidate was full
	Known    int    // strangers that are not asked about again yet
	KnownMax int
}

// Verified returns the counters of verifying since the process began.
func (s *State) Verified() VerifySnapshot {
	v := s.verifier
	v.mu.Lock()
	defer v.mu.Unlock()
	return VerifySnapshot{
		Genuine: v.asked[verdictGenuine], Stranger: v.asked[verdictStranger], Unknown: v.asked[verdictUnknown],
		NoPlace: v.noPlace, Known: len(v.strangers), KnownMax: strangersMax,
	}
}

// whoIs is one question: a path of the forge, and the one credential it is
// asked with.
type whoIs struct {
	cred   identity.Credential
	path   string
	header string // the field that carries it
	value  string // what it says: the whole line, or the cookie's value
	// wait bounds the wait for a place. Nil waits only for the request's own
	// sake, and only where the network is remembered.
	wait context.Context
}

// whoIsHeader asks about the Authorization line of r.
func (g *Gate) whoIsHeader(r *http.Request, c identity.Credential) whoIs {
	q := whoIs{cred: c, path: g.preset.WhoAmI, header: "Authorization", value: r.Header.Get("Authorization")}
	if c.Form != identity.Basic || !g.preset.BearerOnly {
		return q
	}
	user, secret, _ := r.BasicAuth()
	if secret == "" || secret == "x-oauth-basic" {
		secret = user
	}
	if user == "gitlab-ci-token" && g.preset.JobAPI != "" {
		q.path, q.header, q.value = g.preset.JobAPI, "Job-Token", secret
		return q
	}
	q.value = "Bearer " + secret
	return q
}

// whoIsCookie asks about the session cookie of r.
func (g *Gate) whoIsCookie(r *http.Request, c identity.Credential) whoIs {
	q := whoIs{cred: c, path: g.preset.Session, header: "Cookie"}
	if cookies := r.CookiesNamed(g.cookieName()); len(cookies) == 1 {
		q.value = cookies[0].Value
	}
	return q
}

// verify asks the forge who q's credential belongs to, unless that was just
// asked, and proves it where the forge knows it and does not let strangers in.
// The question needs a place in candidate: networks that carried a proof lately
// wait for one, everybody else takes one that is free or goes without.
func (g *Gate) verify(r *http.Request, s *subject, q whoIs, next Next) bool {
	if !q.cred.Usable() || q.value == "" {
		return false
	}
	v, k := g.state.verifier, verifyKey{site: g.opts.Site, secret: q.cred.Secret, group: s.group}
	f, lead := v.join(k, clock())
	if f == nil {
		return false
	}
	if !lead {
		select {
		case <-f.done:
			return f.genuine
		case <-r.Context().Done():
			return false
		}
	}
	said, asked := verdictUnknown, false
	defer func() { v.finish(k, f, said, asked, clock()) }()
	permit, ok := g.verifyPermit(r, s, q.wait)
	if !ok {
		return false
	}
	defer permit.End(admission.OutcomeCompleted)
	asked = true
	said = g.askWho(r, s, q, next)
	return said == verdictGenuine
}

func (g *Gate) verifyPermit(r *http.Request, s *subject, wait context.Context) (admission.Permit, bool) {
	place := *s
	place.class = admission.Candidate
	req := g.request(r, &place)
	if wait == nil && req.Continuation {
		wait = r.Context()
	}
	if wait == nil {
		permit, ref := g.state.Controller.TryAdmit(req)
		return permit, ref == nil || ref.Would
	}
	permit, ref := g.state.Controller.Admit(wait, req)
	return permit, ref == nil || ref.Would
}

// askWho asks on a place that is held already.
func (g *Gate) askWho(r *http.Request, s *subject, q whoIs, next Next) verdict {
	id := g.state.Identity
	target := identity.Target{Site: g.opts.Site, Service: "verify " + q.path}
	strangers := id.Ask(r.Context(), target, id.Rest(g.visitor(r, q, false)), clock, func(ctx context.Context) identity.Answer {
		said, _ := g.visit(ctx, r, q, false, next)
		switch said {
		case verdictStranger:
			return identity.Refused
		case verdictGenuine:
			return identity.Accepted
		}
		return identity.Unknown
	})
	if strangers != identity.Refused {
		return verdictUnknown // an answer with the credential would show nothing
	}
	said, account := g.visit(r.Context(), r, q, true, next)
	if said == verdictGenuine {
		id.Prove(q.cred, s.group, target, clock())
		id.Owned(q.cred, g.opts.Site, account)
		g.remember(s)
	}
	return said
}

// visit sends one question and judges its answer.
func (g *Gate) visit(ctx context.Context, r *http.Request, q whoIs, with bool, next Next) (said verdict, account string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), questionTime)
	defer cancel()
	w := &answerWriter{header: http.Header{}, cancel: cancel}
	ask := g.opts.Prepare(r.WithContext(ctx), w)
	plain := g.visitor(r, q, with)
	ask.Method, ask.URL, ask.RequestURI, ask.Header = plain.Method, plain.URL, plain.RequestURI, plain.Header
	ask.Body, ask.ContentLength, ask.TransferEncoding, ask.Form, ask.PostForm = http.NoBody, 0, nil, nil, nil
	if !g.runQuestion(w, ask, next) {
		return verdictUnknown, ""
	}
	return g.judgeVisit(q, w)
}

// visitorHeaders are the fields of the visitor's request that a question keeps:
// where it came from. Everything else could be a second credential.
var visitorHeaders = []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "User-Agent"}

// visitor is the request of a question: a plain GET with one credential or
// none.
func (g *Gate) visitor(r *http.Request, q whoIs, with bool) *http.Request {
	v := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Path: q.path}, RequestURI: q.path,
		Header: http.Header{"Accept": {"*/*"}}, TLS: r.TLS,
	}
	for _, name := range visitorHeaders {
		if lines := r.Header[name]; len(lines) > 0 {
			v.Header[name] = lines
		}
	}
	if !with {
		return v
	}
	if q.header == "Cookie" {
		v.Header.Set("Cookie", g.cookieName()+"="+q.value)
	} else {
		v.Header.Set(q.header, q.value)
	}
	return v
}

// judgeVisit reads an answer: 401 or a redirect to the sign-in is a stranger's;
// 200 is a user's, from an API only with a name in it.
func (g *Gate) judgeVisit(q whoIs, w *answerWriter) (verdict, string) {
	mediaType, _, _ := mime.ParseMediaType(w.header.Get("Content-Type"))
	switch {
	case w.status == http.StatusUnauthorized,
		w.status >= 300 && w.status < 400 && g.preset.SignInPath(w.header.Get("Location")):
		return verdictStranger, ""
	case w.status != http.StatusOK:
		return verdictUnknown, ""
	case !strings.HasPrefix(q.path, "/api/"):
		if mediaType == "text/html" {
			return verdictGenuine, ""
		}
		return verdictUnknown, ""
	}
	account := accountName(w.body)
	if mediaType != "application/json" || account == "" {
		return verdictUnknown, ""
	}
	return verdictGenuine, account
}

// accountName finds the user's name in the start of a JSON object, which may be
// cut off: "login" or "username" at the top, or in "user" (a job of the CI).
func accountName(b []byte) string {
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return ""
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return ""
		}
		name, _ := t.(string)
		var raw json.RawMessage
		if d.Decode(&raw) != nil {
			return ""
		}
		switch name {
		case "login", "username":
			var s string
			if json.Unmarshal(raw, &s) == nil && s != "" && len(s) <= keyMax {
				return s
			}
		case "user":
			if s := accountName(raw); s != "" {
				return s
			}
		}
	}
	return ""
}
