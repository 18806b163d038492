package gate

import (
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// overloaded is the whole body of a refusal by bucket or pool, and of an
// answer for a worker that is broken.
const overloaded = "webhook ingestion overloaded"

// ingressAnswer is an answer of the gate on a webhook, logout or login path.
type ingressAnswer struct {
	status   int
	class    admission.Class
	reason   string // closed set
	text     string // whole body
	json     bool   // text is JSON
	retry    time.Duration
	allow    string // for 405
	bodyRead bool   // nothing of the body is left
	broken   bool   // the body cannot be used any more: close the connection
}

// answerIngress writes a. It never answers 404, 410 or 429: senders disable
// hooks that do.
func (g *Gate) answerIngress(w http.ResponseWriter, r *http.Request, a ingressAnswer) {
	d := DecisionFrom(r.Context())
	d.Class, d.Outcome, d.Reason = a.class.String(), "refused", a.reason
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	if a.json {
		h.Set("Content-Type", "application/json")
	}
	h.Set("Content-Length", strconv.Itoa(len(a.text)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set(HeaderRefused, "refused; class="+a.class.String()+"; reason="+a.reason)
	if a.allow != "" {
		h.Set("Allow", a.allow)
	}
	if a.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(seconds(a.retry)))
	}
	switch {
	case a.broken && r.ProtoMajor == 1:
		h.Set("Connection", "close")
	case !a.bodyRead && !a.broken:
		g.beforeBody(w, r)
	}
	w.WriteHeader(a.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write([]byte(a.text))
	}
	if !a.bodyRead {
		afterAnswer(w, r)
	}
	g.log(Event{Class: a.class, Reason: a.reason, Status: a.status, Retry: a.retry})
}
