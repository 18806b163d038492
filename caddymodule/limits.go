package caddymodule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/internal/adminapi"
)

// poolLimits is the part of a Pool that can be changed without a reload: what
// becomes the engine's policy. Everything else says how requests are read.
type poolLimits struct {
	admission.Config
	Webhooks *Webhooks `json:"webhooks,omitempty"`
}

// limitsOf are the pool's limits, or what they were changed to.
func (a *App) limitsOf(name string) (l poolLimits, changed, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l, changed = a.changed[name]; changed {
		return l, true, true
	}
	def := a.defs[name]
	if def == nil {
		return l, false, false
	}
	return poolLimits{def.pool.Config, def.pool.Webhooks}, false, true
}

// change puts limits in force that stay until the next configuration has
// started: what is loaded is the truth again then. A configuration that is
// rejected changes nothing, so they outlive it. They are checked as a whole, as
// the configuration is. A nil l is the configuration's own.
func (a *App) change(name string, l *poolLimits) (warnings []admission.Problem, err error) {
	def := a.definition(name)
	if l != nil {
		pool := *def.pool
		pool.Config, pool.Webhooks = l.Config, l.Webhooks
		next, problems := pool.compile()
		if next == nil {
			return nil, joinProblems(problems)
		}
		def, warnings = next, problems
	}
	if !process.change(a.gen, name, def.policy, l != nil) {
		return nil, errNotNewest
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if l == nil {
		delete(a.changed, name)
	} else {
		a.changed[name] = *l
	}
	a.logger.Info("limits changed through the admin endpoint", zap.String("pool", name), zap.Bool("as_configured", l == nil))
	return warnings, nil
}

var errNotNewest = errors.New("another configuration is being loaded; its limits count")

func joinProblems(problems []admission.Problem) error {
	var errs []error
	for _, p := range problems {
		if !p.Warning {
			errs = append(errs, p)
		}
	}
	return errors.Join(errs...)
}

// patched is l with a JSON merge patch laid over it.
func (l poolLimits) patched(patch []byte) (out poolLimits, err error) {
	base, err := json.Marshal(l)
	if err != nil {
		return out, err
	}
	var to, from any
	if err := errors.Join(json.Unmarshal(base, &to), json.Unmarshal(patch, &from)); err != nil {
		return out, err
	}
	if _, ok := from.(map[string]any); !ok {
		return out, errors.New("found no JSON object; allowed: an object of limits")
	}
	merged, err := json.Marshal(mergePatch(to, from))
	if err != nil {
		return out, err
	}
	d := json.NewDecoder(bytes.NewReader(merged))
	d.DisallowUnknownFields()
	return out, d.Decode(&out)
}

// mergePatch is the algorithm of RFC 7396, section 2.
func mergePatch(to, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out, ok := to.(map[string]any)
	if !ok {
		out = map[string]any{}
	}
	for name, value := range changes {
		if value == nil {
			delete(out, name)
			continue
		}
		out[name] = mergePatch(out[name], value)
	}
	return out
}

// limitsBodyMax bounds a patch, in bytes.
const limitsBodyMax = 64 << 10

// serveLimits shows and changes the limits of the running configuration's pools.
func serveLimits(w http.ResponseWriter, r *http.Request) error {
	fail := func(status int, format string, args ...any) error {
		return caddy.APIError{HTTPStatus: status, Err: fmt.Errorf(format, args...)}
	}
	name := strings.TrimPrefix(r.URL.Path, adminapi.LimitsPath)
	ctx := caddy.ActiveContext()
	loaded, err := ctx.AppIfConfigured("admission")
	if err != nil {
		return fail(http.StatusNotFound, "no admission app is running")
	}
	app := loaded.(*App)
	app.changing.Lock()
	defer app.changing.Unlock()
	limits, changed, ok := app.limitsOf(name)
	if !ok {
		return fail(http.StatusNotFound, "pool: found %q; allowed: one of %s", name, strings.Join(app.names(), ", "))
	}
	var warnings []admission.Problem
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodDelete:
		if _, err := app.change(name, nil); err != nil {
			return fail(http.StatusConflict, "%w", err)
		}
		limits, changed, _ = app.limitsOf(name)
	case http.MethodPatch:
		patch, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limitsBodyMax))
		if err != nil {
			return fail(http.StatusRequestEntityTooLarge, "%w", err)
		}
		next, err := limits.patched(patch)
		if err != nil {
			return fail(http.StatusBadRequest, "limits of %s: %w", name, err)
		}
		switch warnings, err = app.change(name, &next); {
		case errors.Is(err, errNotNewest):
			return fail(http.StatusConflict, "%w", err)
		case err != nil:
			return fail(http.StatusBadRequest, "limits of %s: %w", name, err)
		}
		limits, changed = next, true
	default:
		return fail(http.StatusMethodNotAllowed, "allowed: GET, PATCH, DELETE")
	}
	raw, err := json.Marshal(limits)
	if err != nil {
		return err
	}
	answer := adminapi.Limits{Pool: name, Changed: changed, Limits: raw}
	for _, p := range warnings {
		answer.Warnings = append(answer.Warnings, p.Error())
	}
	return writeJSON(w, answer)
}
