package caddymodule

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/gate"
	"github.com/caddy-admission/gateway/admission/spool"
)

// generation is the identity of one loaded configuration. It has a size, so
// that two of them never have the same address.
type generation struct{ id uint64 }

// generations numbers the configurations of this process.
var generations atomic.Uint64

// registry holds the state of every named pool for the life of the process,
// so that permits, budgets, proofs and counters outlive the configuration that
// made them.
//
// A pool has references, one per generation that names it, and a stack of live
// generations, which are those that were started and not stopped. The policy
// in force is that of the newest live generation. A pool without references
// goes away as soon as it is seen with nothing in flight; nothing runs in the
// background for that.
//
// The number of pools is bounded by the names in the loaded configurations and
// those that still have requests in flight.
//
// mu protects everything below it. Lock order: registry, then a pool's
// controller. It is never held while a request waits.
type registry struct {
	mu    sync.Mutex
	pools map[string]*entry
}

type entry struct {
	state   *gate.State
	refused *spool.Refusals
	refs    map[*generation]struct{}
	live    []liveGeneration // oldest first
}

type liveGeneration struct {
	gen     *generation
	policy  *admission.Policy
	changed bool // not what its configuration says
}

// process is the registry of this process.
var process = newRegistry()

func newRegistry() *registry { return &registry{pools: map[string]*entry{}} }

// acquire returns the state of a pool and refers to it for gen. When the state
// does not exist it is made with policy; an existing one keeps the policy in
// force. Calling it again for the same generation changes nothing.
func (r *registry) acquire(gen *generation, name string, policy *admission.Policy) *gate.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweepLocked()
	e := r.pools[name]
	if e == nil {
		e = &entry{state: gate.NewState(policy), refused: spool.NewRefusals(), refs: map[*generation]struct{}{}}
		r.pools[name] = e
	}
	e.refs[gen] = struct{}{}
	return e.state
}

// refused returns where the refused deliveries of an acquired pool are noted.
func (r *registry) refused(name string) *spool.Refusals {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pools[name].refused
}

// start makes gen the newest live generation of the pools it acquired and puts
// its policies in force.
func (r *registry) start(gen *generation, policies map[string]*admission.Policy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, policy := range policies {
		e := r.pools[name]
		if e == nil {
			continue // not acquired: nothing to limit
		}
		e.live = append(e.live, liveGeneration{gen: gen, policy: policy})
		e.state.Controller.Apply(policy)
	}
}

// change replaces the policy of a live generation and reports whether gen is the
// newest of the pool. A generation that starts later has a policy of its own;
// when that one stops again, what was changed here is in force again.
func (r *registry) change(gen *generation, name string, policy *admission.Policy, changed bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.pools[name]
	if e == nil || len(e.live) == 0 || e.live[len(e.live)-1].gen != gen {
		return false
	}
	e.live[len(e.live)-1] = liveGeneration{gen, policy, changed}
	e.state.Controller.Apply(policy)
	return true
}

// stop takes gen off the stacks. Where it was the newest, the limits go back to
// those of the generation before it; where it was the only one they stay, for
// the requests still in flight.
func (r *registry) stop(gen *generation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.pools {
		n := len(e.live)
		wasNewest := n > 0 && e.live[n-1].gen == gen
		e.live = slices.DeleteFunc(e.live, func(l liveGeneration) bool { return l.gen == gen })
		if wasNewest && len(e.live) > 0 {
			e.state.Controller.Apply(e.live[len(e.live)-1].policy)
		}
	}
}

// release drops the references of gen. Permits of its requests stay valid.
func (r *registry) release(gen *generation) {
	r.stop(gen)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.pools {
		delete(e.refs, gen)
	}
	r.sweepLocked()
}

// shutdown refuses everything that waits in the pools of gen.
func (r *registry) shutdown(gen *generation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.pools {
		if _, ok := e.refs[gen]; ok {
			e.state.Controller.Shutdown()
		}
	}
}

// namedState is one pool as list returns it.
type namedState struct {
	name    string
	state   *gate.State
	active  bool
	refused *spool.Refusals
	changed bool // limits were changed through the admin endpoint
}

// list returns the pools in the order of their names.
func (r *registry) list() []namedState {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweepLocked()
	out := make([]namedState, 0, len(r.pools))
	for _, name := range slices.Sorted(maps.Keys(r.pools)) {
		e := r.pools[name]
		n := len(e.live)
		out = append(out, namedState{name: name, state: e.state, refused: e.refused, active: n > 0, changed: n > 0 && e.live[n-1].changed})
	}
	return out
}

// sweepLocked drops pools that nobody names and that hold nothing.
func (r *registry) sweepLocked() {
	for name, e := range r.pools {
		if len(e.refs) == 0 && idle(e.state) {
			delete(r.pools, name)
		}
	}
}

// idle reports whether a pool holds no permit and nobody waits.
func idle(s *gate.State) bool {
	v := s.Controller.Snapshot()
	if v.Permits > 0 {
		return false
	}
	for _, c := range v.Classes {
		if c.Waiting > 0 {
			return false
		}
	}
	return true
}
