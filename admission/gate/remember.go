package gate

import (
	"github.com/caddy-admission/gateway/admission/identity"
)

// remember notes that the network of s carried a proof. It holds no credential
// and outlives the process (see identity.Store.ExportGroups).
func (g *Gate) remember(s *subject) {
	g.state.Identity.RememberGroup(identity.GroupPrefix(s.addr), s.now)
}

// preferred reports whether a request without proof waits before others: its
// network carried a proof in the last 30 days. It is expressed as the engine's
// continuation, which obeys every cap and lets one newcomer pass after two, but
// is charged no bucket; so where the operator gives the class a bucket there is
// no preference, and nothing passes the bucket by.
func (g *Gate) preferred(s *subject) bool {
	p := &g.state.Controller.Policy().Classes[s.class]
	if p.Bucket.On() || p.Bytes.On() || p.CallerBucket.On() {
		return false
	}
	return g.state.Identity.GroupRemembered(identity.GroupPrefix(s.addr), s.now)
}
