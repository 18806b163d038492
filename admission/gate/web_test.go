package gate

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
)

// fullWeb is a gateway whose class web is held by strangers.
func fullWeb(t *testing.T, opts Options) (*testServer, *fakeForge) {
	t.Helper()
	f := newFakeForge()
	s := serveForge(t, admission.Config{WaitOff: true, Classes: map[string]*admission.ClassConfig{"web": {Max: ptr(1)}}}, opts, f)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.get(t, dearPage+"?hold", "203.0.113.9", nil)
	}()
	<-f.entered
	t.Cleanup(func() { close(f.hold); <-done })
	return s, f
}

// Strangers share class web; cheap pages, static files and health checks pass.
func TestStrangersShareDearPagesOnly(t *testing.T) {
	s, _ := fullWeb(t, Options{})
	resp := s.get(t, dearPage, "198.51.100.1", nil)
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(resp.Header.Get(HeaderRefused), "class=web") {
		t.Fatalf("a second stranger got %s %q", resp.Status, resp.Header.Get(HeaderRefused))
	}
	for _, path := range []string{"/", "/o/r", "/assets/js/src/x.js", "/api/healthz", "/user/settings", "/explore/repos"} {
		if resp := s.get(t, path, "198.51.100.1", nil); resp.Header.Get(HeaderRefused) != "" {
			t.Errorf("%s was refused", path)
		}
	}
}

// Without a preset no page is ever limited, and no header taken away.
func TestWithoutPresetPagesAreOther(t *testing.T) {
	f := newFakeForge()
	f.header = make(chan http.Header, 1)
	s := serve(t, admission.Config{Classes: map[string]*admission.ClassConfig{"web": {Max: ptr(0)}}}, Options{}, f.serve)
	resp := s.get(t, dearPage, "", map[string]string{"X-Webauth-User": "root", "Cookie": "i_like_gitea=x"})
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("got %s", resp.Status)
	}
	if h := <-f.header; h.Get("X-Webauth-User") != "root" {
		t.Error("a header was taken away")
	}
	if n := f.questions.Load(); n != 0 {
		t.Errorf("%d questions were asked", n)
	}
}

// A genuine session, token or password is never in web; each is asked about once.
func TestPeopleAreNeverInWeb(t *testing.T) {
	s, f := fullWeb(t, Options{})
	f.tokens["t0k"] = "carol"
	for name, header := range map[string]map[string]string{
		"session":                         cookie(f.session("alice")),
		"token":                           {"Authorization": "token t0k"},
		"password":                        {"Authorization": "Basic YWxpY2U6cHc="},
		"session beside a made-up header": {"Cookie": "i_like_gitea=" + f.session("alice"), "Authorization": "Basic eDp5"},
	} {
		for range 3 {
			if resp := s.get(t, dearPage, "198.51.100.7", header); resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %s %s", name, resp.Status, resp.Header.Get(HeaderRefused))
			}
		}
	}
	if n := s.state.Verified().Genuine; n != 4 {
		t.Errorf("%d verified, want 4", n)
	}
	if n := s.admitted(admission.Web); n != 1 {
		t.Errorf("%d in web, want the stranger", n)
	}
	// What a genuine session carried beside it proved nothing.
	if resp := s.get(t, dearPage, "198.51.100.7", map[string]string{"Authorization": "Basic eDp5"}); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a made-up header was proven by the cookie beside it: %s", resp.Status)
	}
}

// A session of nobody, and a cookie that is made up, prove nothing, are asked
// about once a minute, and a header cannot hide behind them.
func TestSessionsOfStrangersProveNothing(t *testing.T) {
	s, f := fullWeb(t, Options{})
	for name, header := range map[string]map[string]string{
		"session of nobody": cookie(f.session("")),
		"made up":           cookie("made-up"),
		"two of one name":   {"Cookie": "i_like_gitea=" + f.session("alice") + "; i_like_gitea=x"},
		"garbage password":  {"Authorization": "Basic eDp5eg=="},
		"unusable":          {"Authorization": "Negotiate abc"},
	} {
		before := f.questions.Load()
		for range 5 {
			if resp := s.get(t, dearPage, "198.51.100.8", header); resp.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("%s: %s", name, resp.Status)
			}
		}
		if n := f.questions.Load() - before; n > 2 { // the first also asks what strangers get
			t.Errorf("%s: %d questions", name, n)
		}
	}
}

// A proof holds in the network it was made in.
func TestSessionProofHoldsInItsNetwork(t *testing.T) {
	s, f := fullWeb(t, Options{})
	sid := f.session("alice")
	if resp := s.get(t, dearPage, "198.51.100.7", cookie(sid)); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	before := s.state.Verified().Genuine
	if resp := s.get(t, dearPage, "192.0.2.200", cookie(sid)); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	if s.state.Verified().Genuine != before+1 {
		t.Error("another network used the proof without asking")
	}
	// Nor does what one network was told keep another from asking.
	sid = f.session("")
	s.get(t, dearPage, "198.51.100.7", cookie(sid))
	f.mu.Lock()
	f.sessions[sid] = "alice"
	f.mu.Unlock()
	if resp := s.get(t, dearPage, "192.0.2.200", cookie(sid)); resp.StatusCode != http.StatusOK {
		t.Errorf("refused for what another network was told: %s", resp.Status)
	}
}

// A rule that names a class which only a proof opens is no rule.
func TestRuleCannotGiveAProofAway(t *testing.T) {
	for class := range admission.NumClasses {
		opts := Options{Rule: func(*http.Request) Rule { return Rule{Set: true, Class: class} }}
		u := newFakeUpstream()
		s := serve(t, admission.Config{}, opts, u.next)
		s.do(t, ask{path: pushRefs})
		s.do(t, ask{path: "/page"})
		for _, c := range []admission.Class{admission.Push, admission.Read, admission.Candidate, admission.Webhook, admission.Logout} {
			if n := s.admitted(c); n != 0 {
				t.Errorf("a rule for %s admitted %d to %s", class, n, c)
			}
		}
	}
}

// A sign-in seen passing proves its session before the browser's next request;
// the redirects that forges send to strangers do not.
func TestSignInProvesItsSession(t *testing.T) {
	for form, proven := range map[string]bool{
		"user=alice&password=right":                     true,
		"user=alice&password=wrong":                     false, // redirect and a new cookie all the same
		"user=alice&password=right-needs-second-factor": false,
	} {
		s, f := fullWeb(t, Options{})
		r, _ := http.NewRequest(http.MethodPost, s.URL+"/user/login", strings.NewReader(form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		resp := s.send(t, r, "198.51.100.5", cookie(f.session("")))
		c, err := http.ParseSetCookie(resp.Header.Get("Set-Cookie"))
		if err != nil || resp.StatusCode != http.StatusSeeOther {
			t.Fatalf("%s: %s %v", form, resp.Status, err)
		}
		if got := s.state.Verified().Genuine == 1; got != proven {
			t.Errorf("%s: proven %v, want %v", form, got, proven)
		}
		asked := f.questions.Load()
		want := map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable}[proven]
		if resp := s.get(t, dearPage, "198.51.100.5", cookie(c.Value)); resp.StatusCode != want {
			t.Errorf("%s: the next page got %s", form, resp.Status)
		}
		if proven && f.questions.Load() != asked {
			t.Error("the next page asked again")
		}
	}
}

// Signing out ends the proof, for the network that holds it only; so does a
// redirect to the sign-in.
func TestSignedOutSessionsAreForgotten(t *testing.T) {
	s, f := fullWeb(t, Options{})
	sid := f.session("alice")
	known := func() bool {
		return s.state.Identity.Proven(s.state.Identity.SessionValue(sid), s.state.Keyer.Group(addrOf("198.51.100.7")), clock())
	}
	s.get(t, dearPage, "198.51.100.7", cookie(sid))
	if !known() {
		t.Fatal("not proven")
	}
	s.get(t, "/user/logout", "192.0.2.9", cookie(sid))
	if !known() {
		t.Error("somebody else ended the session's proof")
	}
	s.get(t, "/user/logout", "198.51.100.7", cookie(sid))
	if known() {
		t.Error("a session that was signed out is still proven")
	}
	if resp := s.get(t, dearPage, "198.51.100.7", cookie(sid)); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("it still opens a page: %s", resp.Status)
	}
}

// A forge that lets strangers in where users are asked for proves nobody.
func TestForgeThatAcceptsStrangersProvesNobody(t *testing.T) {
	f := newFakeForge()
	open := func(w http.ResponseWriter, r *http.Request) error {
		if r.URL.Path == "/api/v1/user" || r.URL.Path == "/user/settings" {
			f.questions.Add(1)
			w.Header().Set("Content-Type", map[bool]string{true: "application/json", false: "text/html"}[r.URL.Path == "/api/v1/user"])
			_, _ = w.Write([]byte(`{"login":"everybody"}`))
			return nil
		}
		return f.page(w, r)
	}
	s := serve(t, admission.Config{WaitOff: true, Classes: map[string]*admission.ClassConfig{"web": {Max: ptr(0)}}},
		Options{Profile: classify.Gitea}, open)
	for _, header := range []map[string]string{cookie("x"), {"Authorization": "token x"}} {
		if resp := s.get(t, dearPage, "", header); resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%v: %s", header, resp.Status)
		}
	}
	if s.state.Verified().Genuine != 0 {
		t.Error("somebody was proven")
	}
}

// Strangers with cookies of their own cannot take candidate from git: they take
// a free place or go without, never a place in its queue.
func TestStrangersDoNotQueueForCandidate(t *testing.T) {
	f := newFakeForge()
	s := serveForge(t, admission.Config{}, Options{}, f)
	var held []admission.Permit
	for {
		p, ref := s.state.Controller.TryAdmit(&admission.Request{Class: admission.Candidate})
		if ref != nil {
			break
		}
		held = append(held, p)
	}
	if resp := s.get(t, dearPage, "198.51.100.7", cookie(f.session("alice"))); resp.StatusCode != http.StatusOK {
		t.Errorf("%s", resp.Status)
	}
	if v := s.state.Verified(); v.NoPlace != 1 || v.Known != 0 || f.questions.Load() != 0 {
		t.Errorf("%+v, %d questions", v, f.questions.Load())
	}
	if n := s.state.Controller.Snapshot().Decisions[admission.Candidate][admission.DecisionRefused(admission.ReasonWaitTimeout)]; n != 0 {
		t.Error("a stranger's page stood in the queue of git's sign-ins")
	}
	for _, p := range held {
		p.End(admission.OutcomeCompleted)
	}
}

// Identity headers are the login proxy's to set, not the client's.
func TestIdentityHeadersAreStripped(t *testing.T) {
	f := newFakeForge()
	f.header = make(chan http.Header, 1)
	s := serveForge(t, admission.Config{}, Options{People: People{StripHeaders: []string{"X-My-Sso"}}}, f)
	names := []string{"X-Webauth-User", "X-WEBAUTH-EMAIL", "x-webauth-fullname", "X_WEBAUTH_USER", "Remote-User", "X-Remote-User",
		"X-Forwarded-User", "X-Auth-Request-User", "X-My-Sso", "x_my_sso"}
	send := map[string]string{"X-Forwarded-Proto": "https", "X-Gitea-Otp": "1"}
	for _, n := range names {
		send[n] = "root"
	}
	s.get(t, "/o/r", "", send)
	h := <-f.header
	for name := range h {
		if h.Get(name) == "root" || len(h[name]) > 0 && h[name][0] == "root" {
			t.Errorf("%s reached the forge", name)
		}
	}
	if h.Get("X-Forwarded-Proto") == "" || h.Get("X-Gitea-Otp") == "" {
		t.Error("an ordinary header was taken away")
	}
}
