package gate

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
)

// standIn answers questions about people as a forge's sources say it does: one
// user, alice, known by each of the given ways. It fails the test when a
// question carries more than one credential.
type standIn struct {
	t     *testing.T
	known map[string]string // "path field: value" → body of the answer
	page  string            // where strangers are sent to the sign-in
	login string
}

func (f *standIn) serve(w http.ResponseWriter, r *http.Request) error {
	question := strings.HasPrefix(r.URL.Path, "/api/") || r.URL.Path == f.page
	for _, field := range []string{"Authorization", "Cookie", "Job-Token"} {
		if v := r.Header.Get(field); v != "" && question {
			if body, ok := f.known[r.URL.Path+" "+field+": "+v]; ok {
				if w.Header().Set("Content-Type", "application/json"); !strings.HasPrefix(body, "{") {
					w.Header().Set("Content-Type", "text/html; charset=utf-8")
				}
				_, _ = io.WriteString(w, body)
				return nil
			}
		}
	}
	if n := len(r.Header["Authorization"]) + len(r.Header["Cookie"]) + len(r.Header["Job-Token"]); question && n > 1 {
		f.t.Errorf("a question with %d credentials: %v", n, r.Header)
	}
	switch {
	case r.URL.Path == f.page:
		http.Redirect(w, r, f.login, http.StatusFound)
	case question:
		http.Error(w, `{"message":"401 Unauthorized"}`, http.StatusUnauthorized)
	default:
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html>")
	}
	return nil
}

// Each forge is asked in its own way whose a credential is; strangers stay in
// class web, which is full here.
func TestForgesAreAskedInTheirOwnWay(t *testing.T) {
	const gitlabUser, gitlabJob = `{"id":1,"username":"alice","name":"A"}`, `{"id":7,"status":"running","user":{"id":1,"username":"alice"},"commit":{}}`
	gitlab := &standIn{t: t, known: map[string]string{
		"/api/v4/user Authorization: Bearer PAT":      gitlabUser,
		"/api/v4/user Cookie: _gitlab_session=alices": gitlabUser,
		"/api/v4/job Job-Token: JOB":                  gitlabJob,
	}}
	gogs := &standIn{t: t, page: "/user/settings", login: "/user/login", known: map[string]string{
		"/api/v1/user Authorization: token PAT":    `{"id":1,"login":"alice","username":"alice"}`,
		"/user/settings Cookie: i_like_gogs=alice": "<html>settings",
	}}
	for _, c := range []struct {
		profile  classify.Profile
		f        *standIn
		page     string
		field    string
		of, made []string // alice's, and what nobody knows
	}{
		{classify.GitLab, gitlab, "/group/project/-/blame/main/x.rb", "Authorization",
			[]string{basic("oauth2", "PAT"), basic("PAT", ""), basic("alice", "PAT"), "Bearer PAT", basic("gitlab-ci-token", "JOB")},
			[]string{basic("oauth2", "made-up"), "Bearer JOB", basic("gitlab-ci-token", "PAT2"), "token made-up"}},
		{classify.GitLab, gitlab, "/group/project/-/tree/main", "Cookie",
			[]string{"a=1; _gitlab_session=alices; remember_user_token=x"}, []string{"_gitlab_session=made-up", "remember_user_token=x"}},
		{classify.Gogs, gogs, "/team/app/src/main/x.go", "Authorization", []string{"token PAT"}, []string{"token made-up", basic("alice", "made-up")}},
		{classify.Gogs, gogs, "/team/app/commits/main", "Cookie", []string{"lang=de; i_like_gogs=alice"}, []string{"i_like_gogs=made-up"}},
	} {
		for want, credentials := range map[int][]string{http.StatusOK: c.of, http.StatusServiceUnavailable: c.made} {
			for _, credential := range credentials {
				s := serve(t, admission.Config{WaitOff: true, Classes: map[string]*admission.ClassConfig{"web": {Max: ptr(0)}}},
					Options{Profile: c.profile}, c.f.serve)
				for range 2 {
					if resp := s.get(t, c.page, "192.0.2.5", map[string]string{c.field: credential}); resp.StatusCode != want {
						t.Errorf("%s, %s: %s: %d, want %d", c.profile, c.field, credential, resp.StatusCode, want)
					}
				}
			}
		}
	}
}

// The user's name is read from the start of an answer, which may be cut off.
func TestAccountName(t *testing.T) {
	for body, want := range map[string]string{
		`{"id":1,"login":"alice","email":"x"}`:                               "alice",
		`{"id":1,"username":"alice"`:                                         "alice",
		`{"id":7,"user":{"id":1,"username":"alice"},"commit":{"id":"cut o`:   "alice",
		`{"id":7,"commit":{"author":{"username":"mallory"}},"name":"alice"}`: "",
		`{"login":7}`:          "",
		`{"login":""}`:         "",
		`["login","alice"]`:    "",
		`{"message":"401"}`:    "",
		`{"id":1,"login":"ali`: "",
		`<html>`:               "",
		``:                     "",
		fmt.Sprintf(`{"login":%q}`, strings.Repeat("a", keyMax+1)): "",
	} {
		if got := accountName([]byte(body)); got != want {
			t.Errorf("%.60s: %q, want %q", body, got, want)
		}
	}
}
