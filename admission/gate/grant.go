package gate

import (
	"container/list"
	"slices"
	"sync"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
	"github.com/caddy-admission/gateway/admission/identity"
)

// Bounds of grants. At either one the oldest grant goes: its owner becomes a
// newcomer, no more.
const (
	grantLife      = 120 * time.Second
	grantsPerOwner = 16
	grantsMax      = 10_000
	grantRounds    = 8 // negotiation rounds without done; v0 repeats whole POSTs
)

// grantKey names who may continue what. Caller is never 0: without a caller
// there is no grant, because everybody behind that peer would share it.
type grantKey struct {
	caller     admission.Key
	secret     identity.Digest
	repository admission.Key
}

// grant is what an admitted discovery request still entitles its caller to.
type grant struct {
	key     grantKey
	until   time.Time
	refs    int // ls-refs left
	fetches int // fetches with done left
	rounds  int // negotiation rounds left
	probes  int // four-byte receive-pack probes left
	pushes  int // receive-pack POSTs left
	elem    *list.Element
}

// grants remembers who was let in to begin, so that what was started can be
// finished. It is safe for concurrent use.
//
// mu protects everything; order holds all grants, oldest first, and byOwner
// those of a caller, at most grantsPerOwner, oldest first.
type grants struct {
	mu      sync.Mutex
	byKey   map[grantKey]*grant
	byOwner map[admission.Key][]*grant
	order   *list.List
}

func newGrants() *grants {
	return &grants{byKey: map[grantKey]*grant{}, byOwner: map[admission.Key][]*grant{}, order: list.New()}
}

// give renews the grant of k.
func (g *grants) give(k grantKey, now time.Time) {
	if k.caller == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expireLocked(now)
	if old := g.byKey[k]; old != nil {
		g.dropLocked(old)
	}
	if own := g.byOwner[k.caller]; len(own) >= grantsPerOwner {
		g.dropLocked(own[0])
	}
	if g.order.Len() >= grantsMax {
		g.dropLocked(g.order.Front().Value.(*grant))
	}
	n := &grant{key: k, until: now.Add(grantLife), refs: 1, fetches: 1, rounds: grantRounds, probes: 1, pushes: 1}
	n.elem = g.order.PushBack(n)
	g.byKey[k] = n
	g.byOwner[k.caller] = append(g.byOwner[k.caller], n)
}

// use spends one step of k's grant and reports whether there was one.
func (g *grants) use(k grantKey, step grantStep, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.byKey[k]
	if n == nil || now.After(n.until) {
		return false
	}
	left := n.left(step)
	if left == nil || *left == 0 {
		return false
	}
	*left--
	return true
}

// extend renews the time of k's grant: its LFS transfers are still running.
func (g *grants) extend(k grantKey, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.byKey[k]; n != nil && !now.After(n.until) {
		n.until = now.Add(grantLife)
		g.order.MoveToBack(n.elem)
	}
}

func (g *grants) expireLocked(now time.Time) {
	for e := g.order.Front(); e != nil; e = g.order.Front() {
		n := e.Value.(*grant)
		if !now.After(n.until) {
			return
		}
		g.dropLocked(n)
	}
}

func (g *grants) dropLocked(n *grant) {
	g.order.Remove(n.elem)
	delete(g.byKey, n.key)
	own := slices.DeleteFunc(g.byOwner[n.key.caller], func(o *grant) bool { return o == n })
	if len(own) == 0 {
		delete(g.byOwner, n.key.caller)
		return
	}
	g.byOwner[n.key.caller] = own
}

func (g *grants) size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.order.Len()
}

// grantStep is one kind of continuation.
type grantStep uint8

const (
	stepNone grantStep = iota
	stepRefs
	stepFetch
	stepRound
	stepProbe
	stepPush
)

func (n *grant) left(step grantStep) *int {
	switch step {
	case stepRefs:
		return &n.refs
	case stepFetch:
		return &n.fetches
	case stepRound:
		return &n.rounds
	case stepProbe:
		return &n.probes
	case stepPush:
		return &n.pushes
	}
	return nil
}

// stepOf says which continuation a request is.
func stepOf(k classify.Kind, sh shape, length int64) grantStep {
	switch {
	case k == classify.PushRPC && length == 4:
		return stepProbe
	case k == classify.PushRPC:
		return stepPush
	case k != classify.ReadRPC:
		return stepNone
	case sh == shapeRefs:
		return stepRefs
	case sh == shapeRound, sh == shapeNegotiate:
		return stepRound
	}
	return stepFetch
}
