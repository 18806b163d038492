package caddymodule

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// trace follows one imagined request through the routes of a server, with the
// real matchers, and stops at the handler that answers. It runs no handler
// except those that rewrite the path.
type trace struct {
	server     *caddyhttp.Server
	r          *http.Request
	repl       *caddy.Replacer
	handler    *Handler      // the first admission handler that was passed
	at         *http.Request // the request as that handler sees it
	answeredBy string
	why        []string
	depth      int
}

// traceRequest follows r through the servers that listen where it goes, until
// one answers.
func traceRequest(app *caddyhttp.App, r *http.Request) (name string, t *trace) {
	names := slices.Sorted(maps.Keys(app.Servers))
	slices.SortStableFunc(names, func(a, b string) int {
		return one(!listens(app.Servers[a], r)) - one(!listens(app.Servers[b], r))
	})
	for _, name = range names {
		t = &trace{server: app.Servers[name], repl: caddy.NewReplacer()}
		t.r = caddyhttp.PrepareRequest(r.Clone(r.Context()), t.repl, nil, t.server)
		if !listens(t.server, r) {
			t.note("no server listens on the port of the URL; %s is used", name)
		}
		t.routes(t.server.Routes)
		if t.answeredBy != "" || t.handler != nil {
			return name, t
		}
	}
	return name, t
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// listens reports whether a server has a listener for the port of r's URL.
func listens(s *caddyhttp.Server, r *http.Request) bool {
	port := r.URL.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[r.URL.Scheme]
	}
	for _, l := range s.Listen {
		a, err := caddy.ParseNetworkAddress(l)
		if err != nil {
			continue
		}
		for offset := range a.PortRangeSize() {
			if fmt.Sprint(a.StartPort+offset) == port {
				return true
			}
		}
	}
	return false
}

func (t *trace) note(format string, args ...any) {
	t.why = append(t.why, fmt.Sprintf(format, args...))
}

// routes follows a list as Caddy does: of a group, the first match only.
func (t *trace) routes(list caddyhttp.RouteList) {
	if t.depth++; t.depth > maxRouteDepth {
		t.depth--
		return
	}
	defer func() { t.depth-- }()
	taken := map[string]bool{}
	for i := range list {
		route := &list[i]
		if t.answeredBy != "" {
			return
		}
		if route.Group != "" && taken[route.Group] {
			continue
		}
		match, err := route.MatcherSets.AnyMatchWithError(t.r)
		if err != nil {
			t.note("a matcher failed: %v", err)
		}
		if !match || err != nil {
			t.skipped(route)
			continue
		}
		if route.Group != "" {
			taken[route.Group] = true
		}
		t.chain(route.Handlers)
		if route.Terminal {
			return
		}
	}
}

// skipped notes an admission handler whose matcher keeps it out of the way.
func (t *trace) skipped(route *caddyhttp.Route) {
	if isOwn(route) {
		t.note("the matcher of an admission directive does not match")
	}
}

func (t *trace) chain(handlers []caddyhttp.MiddlewareHandler) {
	for _, h := range handlers {
		if t.answeredBy != "" {
			return
		}
		switch h := h.(type) {
		case *Handler:
			if t.handler == nil {
				t.handler, t.at = h, t.r.Clone(t.r.Context())
			}
		case *caddyhttp.Subroute:
			t.routes(h.Routes)
		case *caddyhttp.Invoke:
			if named := t.server.NamedRoutes[h.Name]; named != nil {
				t.routes(caddyhttp.RouteList{*named})
			}
		case interface {
			Rewrite(*http.Request, *caddy.Replacer) bool
		}:
			if h.Rewrite(t.r, t.repl) {
				t.note("a handler rewrites the path to %s", t.r.URL.EscapedPath())
			}
		default:
			if kind := handlerKind(h); answering[kind] {
				t.answeredBy = kind
			}
		}
	}
}
