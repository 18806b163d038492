package identity

import (
	"net/http"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// maxSession bounds the session cookie that is looked at, in bytes.
const maxSession = 4 << 10

// Session returns the credential of a session cookie. It is None without that
// cookie, and Unusable where there are several of that name (servers differ in
// which one counts) or its value is longer than 4 KiB. Its digest equals that
// of no Authorization line, so that neither proves the other. Safe for
// concurrent use; the cookie is not kept.
func (s *Store) Session(r *http.Request, name string) Credential {
	if name == "" || len(r.Header["Cookie"]) == 0 {
		return Credential{}
	}
	cookies := r.CookiesNamed(name)
	switch {
	case len(cookies) == 0 || len(cookies) == 1 && cookies[0].Value == "":
		return Credential{}
	case len(cookies) > 1 || len(cookies[0].Value) > maxSession:
		return Credential{Form: Unusable}
	}
	return s.SessionValue(cookies[0].Value)
}

// SessionValue is Session for the value of a cookie.
func (s *Store) SessionValue(value string) Credential {
	if value == "" || len(value) > maxSession {
		return Credential{Form: Unusable}
	}
	x := s.hashers.get(kindSession)
	defer s.hashers.put(x)
	x.add(value)
	return Credential{Form: Session, Secret: x.digest()}
}

// Forget ends every proof of c, if group holds one: its owner has signed out.
// A group that never proved c cannot end it.
func (s *Store) Forget(c Credential, group admission.Key, now time.Time) {
	if !c.Usable() {
		return
	}
	p := &s.proofs
	p.mu.Lock()
	defer p.mu.Unlock()
	i, slot := p.find(c.Secret, group, s.since(now))
	if slot < 0 {
		return
	}
	p.unlinkAll(i)
	p.table.remove(i)
	p.denied++
}

// Owned records whose secret c is, as the upstream says; c must be proven. A
// name is kept as a digest only. Limits per user then hold over all secrets of
// that user.
func (s *Store) Owned(c Credential, site, account string) {
	if account == "" || !c.Usable() {
		return
	}
	x := s.hashers.get(kindAccount)
	x.add(site)
	x.add(account)
	d := x.digest()
	s.hashers.put(x)
	p := &s.proofs
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := p.table.find(c.Secret); i != none {
		p.table.entry(i).value.account = d
	}
}

// Account returns the digest of the user that c belongs to, zero while that is
// not known.
func (s *Store) Account(c Credential) Digest {
	p := &s.proofs
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := p.table.find(c.Secret); i != none {
		return p.table.entry(i).value.account
	}
	return Digest{}
}
