package gate

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
	"github.com/caddy-admission/gateway/admission/identity"
)

// Pages that come at once with one session share one question, and a refused
// session is not asked about again for a minute, one that the forge said nothing
// about for five seconds.
func TestVerifyIsSharedAndRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeForge()
		a := newAttack(t, admission.Config{}, Options{Profile: classify.Gitea})
		down := false
		page := func(sid string) int {
			r := httptest.NewRequest(http.MethodGet, dearPage, nil)
			r.Header.Set("Cookie", "i_like_gitea="+sid)
			w := httptest.NewRecorder()
			_ = a.Serve(w, r, func(w http.ResponseWriter, r *http.Request) error {
				if r.URL.Path == "/user/settings" {
					time.Sleep(time.Second)
					if down {
						w.WriteHeader(http.StatusBadGateway)
						return nil
					}
				}
				return f.serve(w, r)
			})
			return w.Code
		}
		asked := func(what string, want int64) {
			t.Helper()
			if n := f.questions.Swap(0); n != want {
				t.Errorf("%s: %d questions, want %d", what, n, want)
			}
		}

		alice, stranger := f.session("alice"), f.session("")
		var crowd sync.WaitGroup
		for range 50 {
			crowd.Go(func() { page(alice) })
		}
		crowd.Wait()
		asked("50 pages of one session", 2) // what strangers get, and whose the session is
		if n := a.admitted(admission.Web); n != 0 {
			t.Errorf("%d pages of somebody who is signed in were in class web", n)
		}

		page(stranger)
		asked("a stranger's first page", 1)
		time.Sleep(59 * time.Second)
		page(stranger)
		asked("within a minute", 0)
		time.Sleep(2 * time.Second)
		page(stranger)
		asked("after a minute", 1)

		down = true
		bob := f.session("bob")
		page(bob)
		down = false
		time.Sleep(4 * time.Second)
		page(bob)
		asked("within five seconds of no answer", 0)
		time.Sleep(2 * time.Second)
		page(bob)
		asked("after them", 1)
	})
}

// What a verifier remembers and asks at once is bounded, and so is how many
// wait for one question.
func TestVerifierIsBounded(t *testing.T) {
	v, now := newVerifier(), time.Now()
	key := func(i int) verifyKey {
		return verifyKey{secret: identity.Digest{1, byte(i), byte(i >> 8), byte(i >> 16)}}
	}
	ask := func(i int) (*verifyFlight, bool) { return v.join(key(i), now) }
	for i := range strangersMax + 10 {
		f, lead := ask(i)
		if !lead {
			t.Fatalf("question %d is not asked", i)
		}
		v.finish(key(i), f, verdictStranger, true, now)
	}
	if n, order := len(v.strangers), len(v.order); n > strangersMax || order > strangersMax {
		t.Errorf("%d strangers remembered in %d places, at most %d", n, order, strangersMax)
	}
	if f, _ := ask(strangersMax + 9); f != nil {
		t.Error("the newest stranger is asked about again")
	}
	if _, lead := ask(0); !lead {
		t.Error("the oldest stranger was not forgotten")
	}
	for i := range verifyFlights - 1 {
		if _, lead := ask(-1 - i); !lead {
			t.Fatalf("question %d at once is not asked", i+2)
		}
	}
	if f, _ := ask(1 << 20); f != nil {
		t.Errorf("more than %d questions at once", verifyFlights)
	}
	for range verifyWaiting {
		if f, lead := ask(0); f == nil || lead {
			t.Fatal("a question is not shared")
		}
	}
	if f, _ := ask(0); f != nil {
		t.Errorf("more than %d wait for one question", verifyWaiting)
	}
}
