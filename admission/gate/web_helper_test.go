package gate

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
)

// fakeForge answers as Gitea does: a session cookie for everybody, pages for
// everybody, /user/settings and /api/v1/user for users only. Tokens and
// sessions name their users.
type fakeForge struct {
	mu       sync.Mutex
	tokens   map[string]string
	sessions map[string]string
	next     int // number of the next session

	questions atomic.Int64 // asked of /user/settings and /api/v1/user
	pages     atomic.Int64
	inPages   atomic.Int64
	peak      atomic.Int64
	hold      chan struct{} // pages asked for with ?hold wait until it is closed
	entered   chan string
	header    chan http.Header // of pages, when not nil
}

func newFakeForge() *fakeForge {
	return &fakeForge{
		tokens: map[string]string{"pw": "alice", "pw2": "alice", "bobs": "bob"}, sessions: map[string]string{},
		entered: make(chan string, 100_000), hold: make(chan struct{}),
	}
}

func (f *fakeForge) user(r *http.Request) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c, err := r.Cookie("i_like_gitea"); err == nil && f.sessions[c.Value] != "" {
		return f.sessions[c.Value]
	}
	_, secret, _ := r.BasicAuth()
	if t, ok := strings.CutPrefix(r.Header.Get("Authorization"), "token "); ok {
		secret = t
	}
	return f.tokens[secret]
}

// session makes a session, of nobody for "".
func (f *fakeForge) session(user string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	sid := fmt.Sprintf("sid-%d", f.next)
	f.sessions[sid] = user
	return sid
}

func (f *fakeForge) end(sid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sessions, sid)
}

func (f *fakeForge) serve(w http.ResponseWriter, r *http.Request) error {
	user := f.user(r)
	switch r.URL.Path {
	case "/api/v1/user":
		f.questions.Add(1)
		if user == "" {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return nil
		}
		w.Header().Set("Content-Type", "application/json;charset=utf-8")
		_, _ = fmt.Fprintf(w, `{"id":1,"login":%q,"email":"x"}`, user)
	case "/user/settings":
		f.questions.Add(1)
		if user == "" {
			http.Redirect(w, r, "/user/login", http.StatusSeeOther)
			return nil
		}
		f.html(w)
	case "/user/login":
		f.signIn(w, r)
	case "/user/logout":
		if c, err := r.Cookie("i_like_gitea"); err == nil {
			f.end(c.Value)
		}
		http.Redirect(w, r, "/", http.StatusSeeOther)
	default:
		return f.page(w, r)
	}
	return nil
}

// signIn takes the form's user as genuine when the password is his; a form
// without a token is sent back with a session of nobody, as old Giteas do.
func (f *fakeForge) signIn(w http.ResponseWriter, r *http.Request) {
	user, to := "", "/"
	switch r.FormValue("password") {
	case "right":
		user = r.FormValue("user")
	case "right-needs-second-factor":
		to = "/user/two_factor"
	}
	w.Header().Set("Set-Cookie", "i_like_gitea="+f.session(user)+"; Path=/; HttpOnly")
	http.Redirect(w, r, to, http.StatusSeeOther)
}

func (f *fakeForge) html(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, "<html>")
}

func (f *fakeForge) page(w http.ResponseWriter, r *http.Request) error {
	n := f.inPages.Add(1)
	defer f.inPages.Add(-1)
	for p := f.peak.Load(); n > p && !f.peak.CompareAndSwap(p, n); p = f.peak.Load() {
	}
	f.pages.Add(1)
	if f.header != nil {
		f.header <- r.Header.Clone()
	}
	f.entered <- r.URL.Path
	if r.URL.RawQuery == "hold" {
		select {
		case <-f.hold:
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
	f.html(w)
	return nil
}

func serveForge(t *testing.T, cfg admission.Config, opts Options, f *fakeForge) *testServer {
	t.Helper()
	opts.Profile = classify.Gitea
	return serve(t, cfg, opts, f.serve)
}

// noRedirect does not follow redirects and keeps no cookies.
var noRedirect = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// get asks for a page.
func (s *testServer) get(t *testing.T, path, addr string, header map[string]string) *http.Response {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s.send(t, r, addr, header)
}

func (s *testServer) send(t *testing.T, r *http.Request, addr string, header map[string]string) *http.Response {
	t.Helper()
	if addr != "" {
		r.Header.Set("X-Test-Addr", addr)
	}
	for k, v := range header {
		r.Header.Set(k, v)
	}
	resp, err := noRedirect.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp
}

// admitted is how many requests of a class were let in.
func (s *testServer) admitted(class admission.Class) uint64 {
	d := s.state.Controller.Snapshot().Decisions[class]
	return d[admission.DecisionAdmitted] + d[admission.DecisionWaited]
}

func cookie(sid string) map[string]string { return map[string]string{"Cookie": "i_like_gitea=" + sid} }

const dearPage = "/o/r/blame/branch/main/x.go"
