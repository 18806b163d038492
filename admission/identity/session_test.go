package identity

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func withCookies(cookies ...string) *http.Request {
	return &http.Request{Header: http.Header{"Cookie": cookies}}
}

func TestSessionIsOneCookieOfThatName(t *testing.T) {
	s := NewStore()
	a := s.Session(withCookies("lang=de; sid=abc"), "sid")
	if !a.Usable() || a.Form != Session {
		t.Fatalf("%+v", a)
	}
	if b := s.Session(withCookies("sid=abc"), "sid"); b != a {
		t.Error("another cookie beside it makes another session")
	}
	if b := s.Session(withCookies("sid=abd"), "sid"); b == a {
		t.Error("two values are one session")
	}
	for want, r := range map[Form]*http.Request{
		None:     withCookies("sid2=abc; SID=x"),
		Unusable: withCookies("sid=abc; sid=def"),
	} {
		if got := s.Session(r, "sid"); got.Form != want || got.Usable() {
			t.Errorf("%v is %s, want %s", r.Header, got.Form, want)
		}
	}
	if got := s.Session(withCookies("sid="+strings.Repeat("x", maxSession+1)), "sid"); got.Usable() {
		t.Error("an oversized cookie is usable")
	}
	header := s.Parse(http.Header{"Authorization": {"Bearer abc"}})
	if header.Secret == a.Secret {
		t.Error("a cookie proves an Authorization line of the same text")
	}
}

func TestForgetEndsASessionForItsOwnerOnly(t *testing.T) {
	s, now := NewStore(), time.Now()
	c := s.SessionValue("abc")
	s.Prove(c, 1, Target{Service: "session"}, now)
	s.Owned(c, "site", "alice")
	if s.Account(c).Zero() {
		t.Error("the account is not kept")
	}
	s.Forget(c, 2, now)
	if !s.Proven(c, 1, now) {
		t.Error("a stranger signed somebody out")
	}
	s.Forget(c, 1, now)
	if s.Proven(c, 1, now) || !s.Account(c).Zero() {
		t.Error("a session outlives its end")
	}
}

// Two secrets of one user are one account; the same name elsewhere is another.
func TestAccountJoinsTheSecretsOfAUser(t *testing.T) {
	s, now := NewStore(), time.Now()
	token, cookie, other := s.SessionValue("t"), s.SessionValue("c"), s.SessionValue("o")
	for _, c := range []Credential{token, cookie, other} {
		s.Prove(c, 1, Target{}, now)
	}
	s.Owned(token, "a.example", "alice")
	s.Owned(cookie, "a.example", "alice")
	s.Owned(other, "b.example", "alice")
	if s.Account(token) != s.Account(cookie) || s.Account(token) == s.Account(other) {
		t.Error("accounts are told apart wrongly")
	}
}
