package gate

import (
	"sync/atomic"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/identity"
)

// State is what outlives a configuration: permits, budgets, proofs and
// counters of one named admission group. It is safe for concurrent use and is
// never copied. Several Gates, of several configurations, share one State.
type State struct {
	Controller *admission.Controller
	Identity   *identity.Store
	Keyer      admission.Keyer
	Ingress    *IngressState

	bodies *bodyAccount
	grants *grants
	linger lingerLimit

	verifier *verifier

	abandoned abandonedWork
	slow      slowHolders
	replayed  atomic.Int64
}

// NewState returns a State that enforces policy.
func NewState(policy *admission.Policy) *State {
	controller := admission.NewController(policy)
	return &State{
		Controller: controller,
		Ingress:    newIngressState(controller),
		Identity:   identity.NewStore(),
		Keyer:      admission.NewKeyer(),
		bodies:     newBodyAccount(),
		grants:     newGrants(),
		verifier:   newVerifier(),
	}
}

// lingerLimit bounds how many refused uploads may keep a connection open while
// net/http drains them. Above the bound a refusal closes its connection, which
// costs some clients the answer but bounds goroutines and reading.
type lingerLimit struct{ n atomic.Int64 }

const (
	lingerMax  = 256
	lingerTime = 700 * time.Millisecond // read deadline 200 ms + net/http's 500 ms wait before closing
)

// enter reports whether one more refused upload may linger. An entry leaves by
// itself after lingerTime.
func (l *lingerLimit) enter() bool {
	if l.n.Add(1) > lingerMax {
		l.n.Add(-1)
		return false
	}
	time.AfterFunc(lingerTime, func() { l.n.Add(-1) })
	return true
}
