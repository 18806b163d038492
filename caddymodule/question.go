package caddymodule

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/gate"
)

// note is what the adapter keeps of one request. It belongs to the goroutine
// that serves the request.
type note struct {
	decision gate.Decision
	served   *http.Request // what the gate was given

	// The request as it was handed to the next handler for the first time.
	// Handlers behind change URL and header in place, and a question that
	// started from what they left would go elsewhere: a stripped prefix leads
	// to a 404, which looks like a refusal and would prove any credential.
	asked  bool
	url    url.URL
	uri    string
	header http.Header
}

type noteKey struct{}

func (n *note) context(ctx context.Context) context.Context {
	return context.WithValue(gate.NewContext(ctx, &n.decision), noteKey{}, n)
}

// remember keeps what a question needs, before the handlers behind see inner.
// Only a request of class candidate can raise one.
func (n *note) remember(inner *http.Request) {
	if n.asked || n.decision.Class != admission.Candidate.String() {
		return
	}
	n.asked, n.url, n.uri, n.header = true, *inner.URL, inner.RequestURI, inner.Header.Clone()
}

// prepareQuestion makes of r a request that the rest of the chain can serve
// beside it: as r was before that chain saw it, with its own variables and
// placeholders, bound to w. What handlers in front of this one have set is
// carried over, except who the user is, because the question is asked without
// the credential.
func prepareQuestion(r *http.Request, w http.ResponseWriter) *http.Request {
	old, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	vars, _ := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	server, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)

	q := r.Clone(r.Context())
	if n, ok := r.Context().Value(noteKey{}).(*note); ok && n.asked {
		fresh := n.url
		q.URL, q.RequestURI, q.Header = &fresh, n.uri, n.header.Clone()
		n.served.Header = n.header.Clone() // the gate takes the question's header from it
	}
	repl := caddy.NewReplacer()
	q = caddyhttp.PrepareRequest(q, repl, w, server)
	fresh := q.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	for k, v := range vars {
		if _, set := fresh[k]; !set && !strings.HasPrefix(k, "http.auth.") {
			fresh[k] = v
		}
	}
	if old != nil {
		repl.Map(func(key string) (any, bool) {
			if strings.HasPrefix(key, "http.") && !strings.HasPrefix(key, "http.regexp.") {
				return nil, false // this request's own, or who the user is
			}
			return old.Get(key)
		})
	}
	return q
}
