package caddymodule

import (
	_ "embed"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/internal/adminapi"
)

func init() {
	caddy.RegisterModule(new(Status))
	httpcaddyfile.RegisterHandlerDirective("admission_status", parseStatus)
	// Behind everything that asks who somebody is, in front of everything that
	// answers.
	httpcaddyfile.RegisterDirectiveOrder("admission_status", httpcaddyfile.Before, "handle")
}

// Status answers with the live state of every pool of this process: a page that
// renews itself, or the JSON of the admin endpoint for a client that asks for
// application/json. It shows counts and names of pools and classes, no caller,
// repository or credential. It asks nobody who they are: put basic_auth or a
// matcher of your own network in front.
type Status struct{}

// CaddyModule implements caddy.Module.
func (*Status) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.admission_status", New: func() caddy.Module { return new(Status) }}
}

// parseStatus reads
//
//	admission_status [<matcher>]
func parseStatus(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	h.Next()
	if args := h.RemainingArgs(); len(args) > 0 {
		return nil, h.Errf("admission_status: found %s, allowed: [<matcher>]", quoted(args))
	}
	if h.NextBlock(0) {
		return nil, h.Err("admission_status: found a block, allowed: none")
	}
	return new(Status), nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (*Status) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return nil
	}
	state := currentState(process)
	h.Add("Vary", "Accept")
	if accept := r.Header.Get("Accept"); strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html") {
		return writeJSON(w, state)
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	return statusPage.Execute(w, statusPools(state))
}

//go:embed status.html
var statusSource string

var statusPage = template.Must(template.New("status").Parse(statusSource))

// statusPool and statusRow are what the page shows.
type statusPool struct {
	Name string
	adminapi.Pool
	Rows []statusRow
}

type statusRow struct {
	Class    string
	Live     adminapi.Class
	Most     string // Max, for people
	Held     int    // in use and abandoned, percent of Max; -1: not limited
	Admitted uint64 // at once and after waiting
	Refused  uint64
}

// statusPools lists the pools by name and their classes in the order of proof.
func statusPools(s adminapi.State) (pools []statusPool) {
	for _, name := range slices.Sorted(maps.Keys(s.Pools)) {
		p := statusPool{Name: name, Pool: s.Pools[name]}
		for class := range admission.NumClasses {
			c := p.Classes[class.String()]
			row := statusRow{
				Class: class.String(), Live: c, Most: maxText(c.Max), Held: -1,
				Admitted: c.Decisions["admitted"] + c.Decisions["waited"], Refused: refusedOf(c),
			}
			if c.Max > 0 {
				row.Held = min(100, 100*(c.InUse+c.Abandoned)/c.Max)
			}
			p.Rows = append(p.Rows, row)
		}
		pools = append(pools, p)
	}
	return pools
}

// Interface guard.
var _ caddyhttp.MiddlewareHandler = (*Status)(nil)
