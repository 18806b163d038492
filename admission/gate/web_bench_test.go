package gate

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
)

// BenchmarkPage is what a page costs the gateway beside its upstream: class
// other without a preset, a cheap page with one, and an expensive page of
// somebody known, of a stranger whom the forge refused lately, and of one whose
// cookie is new each time, which costs the upstream one question.
func BenchmarkPage(b *testing.B) {
	f := newFakeForge()
	next := func(w http.ResponseWriter, r *http.Request) error {
		switch {
		case r.URL.Path == "/user/settings" && f.user(r) == "":
			f.questions.Add(1)
			http.Redirect(w, r, "/user/login", http.StatusSeeOther)
		default:
			w.WriteHeader(http.StatusOK)
		}
		return nil
	}
	alice := f.session("alice")
	for _, c := range []struct {
		name, path, cookie string
		profile            classify.Profile
	}{
		{"no-preset", dearPage, "", classify.Generic},
		{"cheap", "/o/r", alice, classify.Gitea},
		{"known", dearPage, alice, classify.Gitea},
		{"stranger", dearPage, "", classify.Gitea},
		{"stranger-asked", dearPage, "x", classify.Gitea},
		{"stranger-new", dearPage, "new", classify.Gitea},
	} {
		b.Run(c.name, func(b *testing.B) {
			policy, _ := admission.Config{}.Compile()
			g, err := New(NewState(policy), Options{Profile: c.profile})
			if err != nil {
				b.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodGet, c.path, nil)
			f.questions.Store(0)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				switch c.cookie {
				case "":
				case "new":
					r.Header.Set("Cookie", fmt.Sprintf("i_like_gitea=%d", i))
				default:
					r.Header.Set("Cookie", "i_like_gitea="+c.cookie)
				}
				if err := g.Serve(httptest.NewRecorder(), r, next); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(f.questions.Load())/float64(b.N), "questions/op")
		})
	}
}
