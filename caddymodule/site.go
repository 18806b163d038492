package caddymodule

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
)

// layout is what the routes of a provisioned configuration say about the
// handlers of this module: the site each stands in, and where requests go past
// it.
type layout struct {
	sites    map[*Handler]string
	spoofed  []string // servers with a handler that trust proxies without the strict rule
	warnings []string
}

// readLayout looks at every route of every server.
func readLayout(app *caddyhttp.App) *layout {
	l := &layout{sites: map[*Handler]string{}}
	count := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(app.Servers)) {
		server := app.Servers[name]
		f := &finder{server: server, layout: l, count: count}
		before := len(l.sites)
		f.routes(server.Routes, "")
		if server.Errors != nil {
			f.routes(server.Errors.Routes, "")
		}
		if len(l.sites) > before && server.TrustedProxiesStrict == 0 && serverTrustsProxies(server) {
			l.spoofed = append(l.spoofed, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(app.Servers)) {
		l.followServer(app.Servers[name])
	}
	return l
}

// finder names the site of each handler. A site is named by its hosts, so that
// the name survives changes elsewhere in the configuration; a second handler
// of the same hosts gets a number.
type finder struct {
	*layout
	server *caddyhttp.Server
	count  map[string]int
	depth  int
}

// maxRouteDepth bounds how deep routes are followed; named routes may invoke
// each other.
const maxRouteDepth = 32

func (f *finder) routes(list caddyhttp.RouteList, site string) {
	if f.depth++; f.depth > maxRouteDepth {
		f.depth--
		return
	}
	defer func() { f.depth-- }()
	for i := range list {
		here := site
		if hosts := routeHosts(&list[i]); len(hosts) > 0 {
			here = strings.Join(hosts, " ")
		}
		for _, h := range list[i].Handlers {
			switch h := h.(type) {
			case *Handler:
				f.found(h, here)
			case *caddyhttp.Subroute:
				f.routes(h.Routes, here)
			case *caddyhttp.Invoke:
				if named := f.server.NamedRoutes[h.Name]; named != nil {
					f.routes(caddyhttp.RouteList{*named}, here)
				}
			}
		}
	}
}

func (f *finder) found(h *Handler, site string) {
	if _, again := f.sites[h]; again {
		return // a named route, invoked from a second place
	}
	f.count[site]++
	if n := f.count[site]; n > 1 {
		site = fmt.Sprintf("%s #%d", site, n)
	}
	f.sites[h] = site
}

// routeHosts are the hosts that a route matches, sorted.
func routeHosts(r *caddyhttp.Route) []string {
	var hosts []string
	for _, set := range r.MatcherSets {
		for _, m := range set {
			switch m := m.(type) {
			case caddyhttp.MatchHost:
				hosts = append(hosts, m...)
			case *caddyhttp.MatchHost:
				hosts = append(hosts, *m...)
			}
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// site names the site of a handler, for keeping apart repositories of the same
// name. A handler that is in none of the known places gets a name that nothing
// else has, which costs it what was remembered before a reload.
func (a *App) site(h *Handler) string {
	if site, ok := a.layout().sites[h]; ok {
		return site
	}
	return fmt.Sprintf("unknown %p", h)
}

// layout returns the layout of this configuration. It may be asked for once
// everything is provisioned.
func (a *App) layout() *layout {
	a.layoutOnce.Do(func() {
		a.found = &layout{}
		if app, err := a.ctx.AppIfConfigured("http"); err == nil {
			a.found = readLayout(app.(*caddyhttp.App))
		}
	})
	return a.found
}

// warnLayout logs where requests go past the handlers.
func (a *App) warnLayout() {
	for _, warning := range a.layout().warnings {
		a.logger.Warn(warning)
	}
	if spoofed := a.layout().spoofed; len(spoofed) > 0 {
		a.logger.Warn("trusted_proxies without trusted_proxies_strict: "+
			"whoever sends a forwarding header chooses the address that limits count; set trusted_proxies_strict",
			zap.Strings("servers", spoofed))
	}
}
