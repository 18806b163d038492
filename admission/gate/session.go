package gate

import (
	"context"
	"net/http"
	"time"

	"github.com/caddy-admission/gateway/admission/classify"
)

// signInWait is how long a sign-in waits for a place to be confirmed on.
const signInWait = 2 * time.Second

// watchPage looks at the answers of pages that sign people in and out.
func (g *Gate) watchPage(page classify.Page, next Next) Next {
	if g.cookieName() == "" {
		return next
	}
	switch page {
	case classify.SignInPage:
		return g.watchSignIn(next)
	case classify.SignOutPage:
		return g.watchSignOut(next)
	}
	return next
}

// watchSignIn sees a sign-in pass: a redirect, not to another step of signing
// in, that sets a session cookie which the request did not carry. That alone
// proves nothing, because forges answer strangers so too (a bad form token, a
// session that is gone); so the forge is asked about the new session before the
// client learns of it, and its next page finds it proven.
func (g *Gate) watchSignIn(next Next) Next {
	return func(w http.ResponseWriter, r *http.Request) error {
		o := &observer{ResponseWriter: w, seen: func(status int, h http.Header) bool {
			if value, ok := g.newSession(r, status, h); ok && g.verifies() {
				g.confirm(r, value, next)
			}
			return true
		}}
		return next(o, r)
	}
}

// newSession returns the session cookie that an answer sets, when the answer
// looks like the end of a sign-in.
func (g *Gate) newSession(r *http.Request, status int, h http.Header) (value string, ok bool) {
	if status < 300 || status > 399 || g.preset.SignInPath(h.Get("Location")) {
		return "", false
	}
	name := g.cookieName()
	for _, line := range h["Set-Cookie"] {
		c, err := http.ParseSetCookie(line)
		if err == nil && c.Name == name {
			value = c.Value
			ok = c.Value != "" && c.MaxAge >= 0
		}
	}
	for _, c := range r.CookiesNamed(name) {
		ok = ok && c.Value != value
	}
	return value, ok
}

// confirm asks the forge about a session that was just made.
func (g *Gate) confirm(r *http.Request, value string, next Next) {
	ctx, cancel := context.WithTimeout(r.Context(), signInWait)
	defer cancel()
	s := g.subject(r, classify.Result{})
	q := g.whoIsCookie(r, g.state.Identity.SessionValue(value))
	q.value, q.wait = value, ctx
	g.verify(r, s, q, next)
}

// watchSignOut forgets the session of a visitor who signs out. Only the network
// in which a session was proven can end it.
func (g *Gate) watchSignOut(next Next) Next {
	return func(w http.ResponseWriter, r *http.Request) error {
		cookie := g.state.Identity.Session(r, g.cookieName())
		if !cookie.Usable() {
			return next(w, r)
		}
		addr, _ := g.opts.ClientIP(r)
		group := g.state.Keyer.Group(addr)
		o := &observer{ResponseWriter: w, seen: func(status int, _ http.Header) bool {
			if status < 400 {
				g.state.Identity.Forget(cookie, group, clock())
			}
			return true
		}}
		return next(o, r)
	}
}

// watchSession ends the proof of a session that the forge no longer takes: it
// sends its owner to the sign-in, or answers 401.
func (g *Gate) watchSession(s *subject, next Next) Next {
	return func(w http.ResponseWriter, r *http.Request) error {
		o := &observer{ResponseWriter: w, seen: func(status int, h http.Header) bool {
			if status == http.StatusUnauthorized || status >= 300 && status < 400 && g.preset.SignInPath(h.Get("Location")) {
				g.state.Identity.Forget(s.session, s.group, clock())
			}
			return true
		}}
		return next(o, r)
	}
}
