package gate

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/caddy-admission/gateway/admission"
)

// Two accounts that happen to have one password have a cap each, from the first
// request that the server has accepted on; a third name of the secret has not.
func TestAccountsWithOnePasswordCountApart(t *testing.T) {
	u := newFakeUpstream()
	cfg := admission.Config{WaitOff: true, Classes: map[string]*admission.ClassConfig{"read": {CallerMax: ptr(1)}}}
	s := serve(t, cfg, Options{}, func(w http.ResponseWriter, r *http.Request) error {
		if user, pass, ok := r.BasicAuth(); ok && (user == "ci1" || user == "ci2") && pass == "same" {
			r.SetBasicAuth("dev", "pw")
		}
		return u.next(w, r)
	})
	fetch := func(user string) ask {
		return ask{method: http.MethodPost, path: "/priv.git/git-upload-pack", user: user, pass: "same", body: "0011command=fetch0001000fwant " + "0000"}
	}
	for _, user := range []string{"ci1", "ci2"} {
		if r, _ := s.do(t, ask{path: "/priv.git/info/refs?service=git-receive-pack", user: user, pass: "same"}); r.StatusCode != http.StatusOK {
			t.Fatal(user, r.StatusCode)
		}
	}
	release := u.holdOn("/git-upload-pack")
	done := make(chan string, 2)
	for _, user := range []string{"ci1", "ci2"} {
		go func() {
			r, text := s.do(t, fetch(user))
			done <- fmt.Sprint(user, r.StatusCode, text)
		}()
		for entered := ""; entered != "/priv.git/git-upload-pack"; {
			select {
			case entered = <-u.entered:
			case got := <-done:
				close(release)
				t.Fatal("refused beside the other account: ", got)
			}
		}
	}
	for _, user := range []string{"ci1", "ci2"} {
		if r, text := s.do(t, fetch(user)); r.StatusCode != http.StatusTooManyRequests {
			t.Errorf("the second of %s: %d %s, want 429 for its own cap", user, r.StatusCode, text)
		}
	}
	close(release)
	for range 2 {
		if got := <-done; got[3:6] != "200" {
			t.Error(got)
		}
	}
}
