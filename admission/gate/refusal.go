package gate

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
)

// HeaderRefused marks the gate's own refusals: `refused; class=…; reason=…`.
// Both values come from closed sets.
const HeaderRefused = "X-Admission"

// lfsMediaType is the type of an LFS error body (git-lfs API, "Response Errors").
const lfsMediaType = "application/vnd.git-lfs+json"

// answer is a refusal ready to be written.
type answer struct {
	status int
	class  admission.Class
	reason string
	retry  time.Duration // zero: no Retry-After
	text   string        // one line for people, no caller-chosen bytes
	lfs    bool          // JSON for git-lfs
}

// limitAnswer turns a refusal of the engine into an answer. LFS clients die on
// 503 and honour 429, so they always get 429.
func (g *Gate) limitAnswer(ref *admission.Refusal, kind classify.Kind) answer {
	a := answer{
		status: http.StatusTooManyRequests, class: ref.Class, reason: ref.Reason.String(),
		retry: ref.RetryAfter, lfs: isLFS(kind),
	}
	if ref.Shared && !a.lfs {
		a.status = http.StatusServiceUnavailable
	}
	if s := g.opts.RefuseStatus[ref.Class]; s != 0 && !a.lfs {
		a.status = s
	}
	a.text = limitText(ref, a.retry)
	return a
}

func isLFS(k classify.Kind) bool {
	switch k {
	case classify.LFSBatch, classify.LFSLocks, classify.LFSVerify, classify.LFSObject:
		return true
	}
	return false
}

// limitText is the line that git shows its user.
func limitText(ref *admission.Refusal, retry time.Duration) string {
	again := fmt.Sprintf("try again in %d s", seconds(retry))
	switch ref.Reason {
	case admission.ReasonClonesFull:
		return "gateway: as many clones run as may at once; " + again + ", or fetch less (--filter=blob:none)"
	case admission.ReasonRepositoryFull:
		return "gateway: this repository has all the places it may have; " + again
	}
	if !ref.Shared {
		return "gateway: too many " + classNoun(ref.Class) + " from you at once; let them finish and " + again
	}
	if ref.Class == admission.Anonymous || ref.Class == admission.Discovery || ref.Class == admission.Web {
		return "gateway: all places for " + classNoun(ref.Class) + " are taken; " + again + ", or sign in"
	}
	return "gateway: all places for " + classNoun(ref.Class) + " are taken; " + again
}

func classNoun(c admission.Class) string {
	switch c {
	case admission.Push:
		return "pushes"
	case admission.Read:
		return "signed-in reads"
	case admission.Discovery:
		return "first contacts"
	case admission.Candidate:
		return "sign-ins"
	case admission.Anonymous:
		return "anonymous git reads"
	case admission.LFS:
		return "LFS transfers"
	case admission.Web:
		return "anonymous page views"
	case admission.Stream:
		return "streams"
	}
	return "requests"
}

// seconds rounds up to the whole seconds of a Retry-After, 1 to 300: git gives
// up on more than 300.
func seconds(d time.Duration) int {
	return int(min(max(math.Ceil(d.Seconds()), 1), 300))
}

// refuse writes a and makes sure that the client sees it although its body was
// not read. It is the only way in which the gate refuses a request.
func (g *Gate) refuse(w http.ResponseWriter, r *http.Request, a answer) {
	d := DecisionFrom(r.Context())
	d.Outcome, d.Reason, d.Class = "refused", a.reason, a.class.String()
	body, mediaType := []byte(a.text+"\n"), "text/plain; charset=utf-8"
	if a.lfs {
		body, _ = json.Marshal(map[string]string{"message": a.text})
		mediaType = lfsMediaType
	}
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set(HeaderRefused, "refused; class="+a.class.String()+"; reason="+a.reason)
	if a.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(seconds(a.retry)))
	}
	g.beforeBody(w, r)
	w.WriteHeader(a.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
	afterAnswer(w, r)
	g.log(Event{Class: a.class, Reason: a.reason, Status: a.status, Retry: a.retry})
}

// beforeBody prepares an HTTP/1.1 connection for an answer that comes before
// the body was read. net/http would first drain up to 256 KiB of a wrapped
// body, for ever when it trickles. With Expect the client has sent nothing, so
// the connection is closed; else a read deadline bounds the draining, which
// loses no answer, and `Connection: close` alone would (docs/refusing.md).
func (g *Gate) beforeBody(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return
	}
	if r.Header.Get("Expect") != "" || !g.state.linger.enter() {
		w.Header().Set("Connection", "close")
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(clock().Add(200 * time.Millisecond))
}

// afterAnswer ends the reading of an HTTP/1.1 body of undeclared length once the
// answer is out. net/http drains 256 KiB of it before it answers, and would
// drain as much again before it closes the connection.
func afterAnswer(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody || r.ContentLength >= 0 {
		return
	}
	rc := http.NewResponseController(w)
	_ = rc.Flush()
	_ = rc.SetReadDeadline(clock())
}

// refuseShape answers a request that no upstream should have to interpret.
func (g *Gate) refuseShape(w http.ResponseWriter, r *http.Request, res *classify.Result) {
	why := res.Why
	if why == "" {
		why = "non-canonical git URL"
	}
	g.state.Controller.CountRefusal(admission.Other, admission.ReasonShape)
	g.refuse(w, r, answer{status: res.Refuse, class: admission.Other, reason: admission.ReasonShape.String(), text: "gateway: " + why})
}
