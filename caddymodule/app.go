package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/gate"
)

func init() {
	caddy.RegisterModule(new(App))
}

// App owns the named pools of one configuration. It needs no configuration of
// its own: a handler that names a pool brings it along. Every pool that this
// configuration names is created, with its limits in force, when the App
// starts.
type App struct {
	// Pools configures pools by name, for handlers that only name them.
	Pools map[string]*Pool `json:"pools,omitempty"`

	ctx    caddy.Context
	logger *zap.Logger
	gen    *generation
	load   *loadNotes
	events *refusalLog

	layoutOnce sync.Once
	found      *layout
	started    bool
	inForce    chan struct{} // closed when Start has done its work
	before     *zap.Logger   // what told of the spools before this configuration
	groups     *groupKeeper  // from Start to Stop

	changing sync.Mutex // held while somebody changes limits through the admin endpoint

	mu       sync.Mutex            // protects what follows; no other lock is taken inside
	changed  map[string]poolLimits // in place of the configuration's, by pool
	defs     map[string]*definition
	handlers []*Handler
}

// CaddyModule implements caddy.Module.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admission", New: func() caddy.Module { return new(App) }}
}

// Provision checks the pools and makes the metrics visible in this
// configuration. It changes no limit.
func (a *App) Provision(ctx caddy.Context) error {
	a.ctx, a.logger = ctx, ctx.Logger()
	a.gen = &generation{id: generations.Add(1)}
	a.load = newLoadNotes(a.logger)
	a.events = newRefusalLog(a.logger)
	a.defs, a.changed = map[string]*definition{}, map[string]poolLimits{}
	a.inForce = make(chan struct{})
	if err := registerMetrics(ctx.GetMetricsRegistry()); err != nil {
		return err
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(a.Pools)) {
		if a.Pools[name] == nil {
			a.Pools[name] = &Pool{}
		}
		errs = append(errs, a.define(name, a.Pools[name]))
	}
	return errors.Join(append(errs, a.watchExit())...)
}

// watchExit tells the pools at once when the process is asked to end, so that
// nothing that waits holds the exit up. Apps are stopped in random order, so
// Stop alone would come too late.
func (a *App) watchExit() error {
	app, err := a.ctx.App("events")
	if err != nil {
		return err
	}
	return app.(*caddyevents.App).On("stopping", exitWatcher{a.gen})
}

// define checks a pool's configuration and keeps it under its name. Two
// configurations of one name must be equal.
func (a *App) define(name string, pool *Pool) error {
	if !poolName.MatchString(name) {
		return fmt.Errorf("admission pool name: found %q; allowed: %s", name, poolNameText)
	}
	def, problems := pool.compile()
	if def == nil {
		list := make([]mistake, len(problems))
		for i, p := range problems {
			list[i] = mistake{Problem: p}
		}
		return fmt.Errorf("admission %s: %w", name, joinMistakes(list))
	}
	if err := a.loadInto(def, name); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if first, ok := a.defs[name]; ok {
		if !reflect.DeepEqual(first.pool, pool) {
			return fmt.Errorf("admission %s: found two different configurations of this name; allowed: one, other handlers only name it", name)
		}
		return nil
	}
	if other, taken := a.keepsIn(def); taken {
		return fmt.Errorf("admission %s: spool: found %q, where pool %s keeps; allowed: a directory of its own for each pool", name, pool.Spool.Path, other)
	}
	a.defs[name] = def
	for _, w := range def.warnings {
		a.logger.Warn(w.Error(), zap.String("pool", name))
	}
	return nil
}

// keepsIn finds the pool of this configuration that has def's spool directory.
func (a *App) keepsIn(def *definition) (pool string, found bool) {
	for name, other := range a.defs {
		if def.spool != nil && other.spool != nil && other.spool.config.Dir == def.spool.config.Dir {
			return name, true
		}
	}
	return "", false
}

// loadInto reads what the definition needs beside the configuration.
func (a *App) loadInto(def *definition, name string) error {
	ingress, warnings, err := def.pool.loadIngress()
	for _, w := range warnings {
		a.logger.Warn(w.String(), zap.String("pool", name))
	}
	if err != nil {
		return fmt.Errorf("admission %s: %w", name, err)
	}
	def.ingress = ingress
	if def.spool, err = def.pool.loadSpool(ingress); err != nil {
		return fmt.Errorf("admission %s: %w", name, err)
	}
	if def.rules, err = a.loadRules(def.pool); err != nil {
		return fmt.Errorf("admission %s: %w", name, err)
	}
	return nil
}

// join notes a handler, so that Start can build what it needs.
func (a *App) join(h *Handler) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.handlers = append(a.handlers, h)
}

// definition returns the configuration of a name, the defaults when nobody
// configured it.
func (a *App) definition(name string) *definition {
	a.mu.Lock()
	defer a.mu.Unlock()
	def := a.defs[name]
	if def == nil {
		def, _ = new(Pool).compile()
		a.defs[name] = def
	}
	return def
}

// state returns the pool's long-lived state. The first caller in the process
// makes it, with this configuration's policy; that may be a request, because
// apps start in random order.
func (a *App) state(name string) *gate.State {
	return process.acquire(a.gen, name, a.definition(name).policy)
}

// Start puts the limits of this configuration in force.
func (a *App) Start() error {
	if err := a.checkSpoofing(); err != nil {
		return err
	}
	for _, h := range a.joined() {
		if _, err := h.gate(); err != nil {
			return fmt.Errorf("admission %s: %w", h.Name, err)
		}
	}
	if err := a.startSpools(); err != nil {
		return err
	}
	policies := map[string]*admission.Policy{}
	a.groups = newGroupKeeper(a.logger)
	for _, name := range a.names() {
		a.groups.add(name, a.state(name).Identity)
		policies[name] = a.definition(name).policy
	}
	process.start(a.gen, policies)
	a.started = true
	close(a.inForce)
	a.groups.start()
	a.warnLayout()
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		for _, line := range policies[name].Shares().Lines() {
			a.logger.Info(line, zap.String("pool", name))
		}
	}
	return nil
}

// startSpools opens what the pools keep deliveries in.
func (a *App) startSpools() error {
	plans := map[string]*spoolPlan{}
	for _, name := range a.names() {
		if plan := a.definition(name).spool; plan != nil {
			plans[name] = plan
		}
	}
	a.before = spoolEvents.logger.Swap(a.logger)
	if err := keepers.start(a.gen, plans); err != nil {
		spoolEvents.logger.CompareAndSwap(a.logger, a.before)
		return fmt.Errorf("admission: %w", err)
	}
	return nil
}

func (a *App) joined() []*Handler {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.handlers)
}

func (a *App) names() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.defs))
}

// Stop gives the limits back to the newest generation that is still running.
func (a *App) Stop() error {
	process.stop(a.gen)
	keepers.stop(a.gen)
	spoolEvents.logger.CompareAndSwap(a.logger, a.before)
	if a.groups != nil {
		a.groups.stop()
		a.groups = nil
	}
	if caddy.Exiting() {
		process.shutdown(a.gen)
	}
	return nil
}

// Cleanup drops the references to the pools. Requests of this configuration
// may still be running.
func (a *App) Cleanup() error {
	if a.gen == nil {
		return nil
	}
	process.release(a.gen)
	keepers.release(a.gen)
	if cause := context.Cause(a.ctx); !a.started && cause != nil && !strings.Contains(cause.Error(), "error") {
		a.warnLayout() // "caddy validate" starts nothing, yet its user wants to know
	}
	return nil
}

// Interface guards.
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
