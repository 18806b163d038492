package caddymodule

import (
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// prepareQuestion makes of r a request that the rest of the chain can serve
// beside it: with its own URL, variables and placeholders, bound to w. What
// handlers in front of this one have set is carried over, except who the user
// is, because the question is asked without the credential.
func prepareQuestion(r *http.Request, w http.ResponseWriter) *http.Request {
	old, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	vars, _ := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	server, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)

	q := r.Clone(r.Context())
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
