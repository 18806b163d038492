package caddymodule

import (
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-admission/gateway/admission/gate"
)

func init() {
	caddy.RegisterModule(new(Handler))
}

// Handler admits requests to the handlers behind it or refuses them. It must
// stand in front of whatever it protects; the Caddyfile directive does so by
// itself.
//
// Placeholders, empty until known:
//
//	{http.admission.class}       the class of the request
//	{http.admission.outcome}     how it ended, for access logs
//	{http.admission.reason}      why it was refused
//	{http.admission.repository}  the repository it names
type Handler struct {
	// Name is the pool to use; handlers of the same name share it. Default:
	// default.
	Name string `json:"name,omitempty"`

	// Pool configures the pool of that name. Leave it out where another
	// handler or the admission app does. Default: the defaults of a git server.
	Pool *Pool `json:"pool,omitempty"`

	app   *App
	once  sync.Once
	built *gate.Gate
	err   error

	logCallers bool // log here, with the address, instead of in the gate
}

// CaddyModule implements caddy.Module.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.admission", New: func() caddy.Module { return new(Handler) }}
}

// Provision checks the configuration and changes no limit.
func (h *Handler) Provision(ctx caddy.Context) error {
	app, err := ctx.App("admission")
	if err != nil {
		return err
	}
	h.app = app.(*App)
	if h.Name == "" {
		h.Name = defaultName
	}
	if !poolName.MatchString(h.Name) {
		return errors.New("admission pool name: allowed: " + poolNameText)
	}
	h.app.join(h)
	knowConnections(ctx)
	if h.Pool == nil {
		return nil
	}
	return h.app.define(h.Name, h.Pool)
}

// gate returns the handler's gate. It is made when the app starts or at the
// first request, whichever comes first.
func (h *Handler) gate() (*gate.Gate, error) {
	h.once.Do(func() {
		h.built, h.err = gate.New(h.app.state(h.Name), h.options())
	})
	return h.built, h.err
}

// options adapts the pool's configuration to the gate.
func (h *Handler) options() gate.Options {
	def := h.app.definition(h.Name)
	o := gate.Options{
		Site:         h.app.site(h),
		Profile:      def.profile,
		ClientIP:     h.app.load.clientIP(def.pool.Caller),
		Prepare:      prepareQuestion,
		Placeholder:  placeholder,
		Taken:        taken,
		RefuseStatus: def.refuse,
		StatusOf:     statusOf,
		Log:          h.app.events.sink(h.Name),
		Ingress:      h.app.ingressOf(h.Name, def),
	}
	def.recognise(&o)
	if h.logCallers = def.pool.LogCallers; h.logCallers {
		o.Log = h.app.events.dryRunOnly(h.Name)
	}
	if c := def.pool.Caller; c != nil {
		o.IPv4Bits, o.IPv6Bits = c.IPv4Bits, c.IPv6Bits
	}
	return o
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	g, err := h.gate()
	if err != nil {
		return caddyhttp.Error(http.StatusInternalServerError, err)
	}
	n := new(note)
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Map(decisionValues(&n.decision))
	}
	n.served = r.WithContext(n.context(r.Context()))
	err = g.Serve(w, n.served, func(w http.ResponseWriter, inner *http.Request) error {
		n.remember(inner)
		return next.ServeHTTP(w, inner)
	})
	if d := &n.decision; h.logCallers && d.Outcome == "refused" {
		ip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
		h.app.events.write(refusalKind{pool: h.Name, class: d.Class, reason: d.Reason}, zap.String("client_ip", ip))
	}
	return err
}

const placeholderPrefix = "http.admission."

// decisionValues serves the placeholders of one request.
func decisionValues(d *gate.Decision) caddy.ReplacerFunc {
	return func(key string) (any, bool) {
		name, ok := strings.CutPrefix(key, placeholderPrefix)
		if !ok {
			return nil, false
		}
		switch name {
		case "class":
			return d.Class, true
		case "outcome":
			return d.Outcome, true
		case "reason":
			return d.Reason, true
		case "repository":
			return d.Repository, true
		}
		return nil, false
	}
}

// placeholder evaluates a caller key; unknown placeholders are empty.
func placeholder(r *http.Request, name string) string {
	repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return ""
	}
	return repl.ReplaceAll(name, "")
}

// statusOf is the status that Caddy will write for an error of next.
func statusOf(err error) int {
	var he caddyhttp.HandlerError
	if errors.As(err, &he) && he.StatusCode != 0 {
		return he.StatusCode
	}
	return http.StatusInternalServerError
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
