package caddymodule

import (
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Kinds of handlers that answer every request they see.
var answering = map[string]bool{
	"reverse_proxy": true, "file_server": true, "static_response": true, "error": true,
	"acme_server": true, "metrics": true,
}

// path is the state of an imagined request on its way through the routes.
type path struct {
	site     string
	passed   bool   // through an admission handler
	answered string // by a handler of this kind, on every way so far
}

// follower walks the routes of one server as a request would, taking every
// branch, and collects what can never be reached and what can be reached past
// the gateway.
type follower struct {
	*layout
	server  *caddyhttp.Server
	guarded map[string]bool // sites with an admission handler
	told    map[string]bool
	depth   int
}

func (l *layout) followServer(server *caddyhttp.Server) {
	f := &follower{layout: l, server: server, guarded: map[string]bool{}, told: map[string]bool{}}
	for i := range server.Routes {
		route := &server.Routes[i]
		own := &finder{layout: &layout{sites: map[*Handler]string{}}, server: server, count: map[string]int{}}
		own.routes(caddyhttp.RouteList{*route}, "")
		f.guarded[siteOf(route, "")] = len(own.sites) > 0 || f.guarded[siteOf(route, "")]
	}
	f.routes(server.Routes, path{})
}

func siteOf(r *caddyhttp.Route, outer string) string {
	if hosts := routeHosts(r); len(hosts) > 0 {
		return strings.Join(hosts, " ")
	}
	return outer
}

// routes follows a list and returns the state behind it.
func (f *follower) routes(list caddyhttp.RouteList, p path) path {
	if f.depth++; f.depth > maxRouteDepth {
		f.depth--
		return p
	}
	defer func() { f.depth-- }()
	groups := map[string]bool{} // group → every member so far answers
	for i := range list {
		route := &list[i]
		in := p
		in.site = siteOf(route, p.site)
		out := f.handlers(route, in)
		always := len(route.MatcherSets) == 0
		if route.Group != "" {
			before, seen := groups[route.Group]
			groups[route.Group] = out.answered != "" && (before || !seen)
			if always && !groups[route.Group] {
				out.answered = p.answered // an earlier member may let requests through
			}
		}
		switch {
		case always:
			p.passed, p.answered = out.passed, out.answered
		case isOwn(route):
			p.passed = true // the operator chose what passes it
		}
	}
	return p
}

// handlers follows the chain of one route.
func (f *follower) handlers(route *caddyhttp.Route, p path) path {
	for _, h := range route.Handlers {
		switch h := h.(type) {
		case *Handler:
			if p.answered != "" {
				f.warn("admission in site %s cannot be reached: %s in front of it answers every request", p.site, p.answered)
			}
			p.passed = true
		case *caddyhttp.Subroute:
			p = f.inner(h.Routes, p)
		case *caddyhttp.Invoke:
			if named := f.server.NamedRoutes[h.Name]; named != nil {
				p = f.inner(caddyhttp.RouteList{*named}, p)
			}
		default:
			kind := handlerKind(h)
			if !answering[kind] || p.answered != "" {
				continue
			}
			if kind == "reverse_proxy" && !p.passed && f.guarded[p.site] {
				f.warn("requests in site %s can reach a reverse_proxy without passing admission: "+
					"move admission in front of the blocks that proxy, unless this is intended", p.site)
			}
			p.answered = kind
		}
	}
	return p
}

func (f *follower) inner(list caddyhttp.RouteList, p path) path {
	out := f.routes(list, p)
	out.site = p.site
	return out
}

// isOwn reports whether the route holds nothing but handlers of this module,
// which is what the directive with a matcher makes.
func isOwn(r *caddyhttp.Route) bool {
	for _, h := range r.Handlers {
		if _, ok := h.(*Handler); !ok {
			return false
		}
	}
	return len(r.Handlers) > 0
}

func (f *follower) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !f.told[text] {
		f.told[text] = true
		f.warnings = append(f.warnings, text)
	}
}

func handlerKind(h caddyhttp.MiddlewareHandler) string {
	if m, ok := h.(caddy.Module); ok {
		return m.CaddyModule().ID.Name()
	}
	return ""
}
