package gate

import (
	"net/http"
	"net/netip"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
)

// People says how the gate knows people beside proof by asking the same request
// without the credential. The zero value knows nobody more; what follows from a
// forge's preset needs Options.Profile as well.
type People struct {
	// User names the user that a handler in front has authenticated, "" for
	// nobody. Nil: no handler does.
	User func(*http.Request) string
	// Certificates lets a verified client certificate count as a proof. Not
	// for a site behind a proxy that presents one certificate for everybody.
	Certificates bool
	// Trusted are networks whose requests count as proven. They hold for
	// callers only: not for a proxy that is not trusted to name its clients.
	Trusted []netip.Prefix
	// Shared are networks in which one address stands for many callers. Their
	// addresses are capped by Keys[ByCustom3] in place of Keys[ByAddress].
	Shared []netip.Prefix
	// SharedMax is how many callers one such address stands for; the policy's
	// caps of ByCustom3 follow from it. At least 1 beside Shared.
	SharedMax int

	// VerifyOff never asks the forge who a credential or session belongs to.
	VerifyOff bool
	// Cookie is the session cookie's name where it differs from the preset's.
	Cookie string
	// KeepHeaders lets identity headers of clients pass in spite of a preset;
	// StripHeaders are more names to take away, with or without one.
	KeepHeaders  bool
	StripHeaders []string
}

// proven reports whether the request has a proof of any kind.
func (s *subject) proven() bool { return s.state == classify.Proven || s.vouched }

// vouch looks for a proof that no Authorization line carries. Who vouches must
// not be something that the client says: a certificate was verified by the TLS
// layer, a user by a handler in front, and an address counts only where it
// names the caller.
func (g *Gate) vouch(r *http.Request, s *subject, isCaller bool) {
	p := &g.opts.People
	if p.User != nil {
		if user := p.User(r); user != "" {
			s.vouched, s.account = true, g.state.Keyer.String("user\x00"+g.opts.Site+"\x00"+user)
			return
		}
	}
	if p.Certificates && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 && len(r.TLS.PeerCertificates) > 0 {
		s.vouched, s.account = true, g.state.Keyer.Bytes(r.TLS.PeerCertificates[0].Raw)
		return
	}
	if isCaller && within(p.Trusted, s.addr) {
		s.vouched = true // the account is the caller itself
	}
}

// within reports whether addr lies in one of the networks.
func within(networks []netip.Prefix, addr netip.Addr) bool {
	if len(networks) == 0 || !addr.IsValid() {
		return false
	}
	for _, n := range networks {
		if n.Contains(addr) {
			return true
		}
	}
	return false
}

// setCaller puts the caller at addr into q: under the scope of an address of its
// own, or of one that many callers share.
func (g *Gate) setCaller(q *admission.Request, addr netip.Addr, caller admission.Key) {
	scope := admission.ByAddress
	if within(g.opts.People.Shared, addr) {
		scope = admission.ByCustom3
	}
	q.Keys[scope] = caller
}

// callersAt is how many callers addr stands for.
func (g *Gate) callersAt(addr netip.Addr) uint64 {
	if within(g.opts.People.Shared, addr) {
		return uint64(max(1, g.opts.People.SharedMax))
	}
	return 1
}

// userKey is whose permits count together under Keys[ByCredential]: the user
// where one is known, else the secret with one of the few names that were
// accepted beside it, else the address of a trusted network.
func (g *Gate) userKey(s *subject) admission.Key {
	if s.account != 0 {
		return s.account
	}
	if s.state == classify.Proven {
		if a := g.state.Identity.Account(s.cred); !a.Zero() {
			return g.state.Keyer.Bytes(a[:])
		}
		user := g.state.Identity.User(s.cred)
		return g.state.Keyer.Bytes(append(s.cred.Secret[:], user[:]...))
	}
	return s.caller
}

// noCaller is the key of everybody whose address is missing or malformed: they
// share one caller's limits, so that a malformed value buys nothing.
const noCaller = "no address"

// keyMax is the longest value of a placeholder that is one caller of its own.
const keyMax = 256

// customKey keys the value of an operator's placeholder. An empty value is not
// capped; all values that are longer than 256 bytes are one caller, and so are
// all with control characters, so that neither makes fresh budgets.
func (g *Gate) customKey(v string) admission.Key {
	switch {
	case v == "":
		return 0
	case len(v) > keyMax:
		return g.state.Keyer.String("\x00oversized")
	}
	for i := range len(v) {
		if v[i] < ' ' || v[i] == 0x7f {
			return g.state.Keyer.String("\x00malformed")
		}
	}
	return g.state.Keyer.String(v)
}

// cookieName is the session cookie of the forge, "" without sessions.
func (g *Gate) cookieName() string {
	if g.preset == nil || g.preset.Cookie == "" {
		return ""
	}
	if g.opts.People.Cookie != "" {
		return g.opts.People.Cookie
	}
	return g.preset.Cookie
}

// verifies reports whether the forge can be asked who somebody is.
func (g *Gate) verifies() bool {
	return g.preset != nil && g.preset.WhoAmI != "" && !g.opts.People.VerifyOff
}

// known reports whether the visitor of a page has a proof, and asks the forge
// where it has none yet.
func (g *Gate) known(r *http.Request, s *subject, next Next) bool {
	if s.proven() {
		g.remember(s)
		return true
	}
	id := g.state.Identity
	cookie := id.Session(r, g.cookieName())
	if cookie.Usable() && id.Proven(cookie, s.group, s.now) {
		s.session = cookie
		g.rememberSession(s)
		return true
	}
	if !g.verifies() {
		return false
	}
	if s.cred.Usable() && g.verify(r, s, g.whoIsHeader(r, s.cred), next) {
		s.state = classify.Proven
		return true
	}
	if cookie.Usable() && g.verify(r, s, g.whoIsCookie(r, cookie), next) {
		s.session = cookie
		g.rememberSession(s)
		return true
	}
	return false
}

func (g *Gate) rememberSession(s *subject) {
	s.vouched = true
	if a := g.state.Identity.Account(s.session); !a.Zero() {
		s.account = g.state.Keyer.Bytes(a[:])
	} else {
		s.account = g.state.Keyer.Bytes(s.session.Secret[:])
	}
	g.remember(s)
}
