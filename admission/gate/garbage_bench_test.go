package gate

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddy-admission/gateway/admission"
)

// BenchmarkGarbage is what one discovery request costs the gateway beside its
// upstream, and how many requests reach the upstream for it: without a
// credential, with one that is new each time and that the upstream refuses or,
// on an open repository, accepts, and with one that is proven.
func BenchmarkGarbage(b *testing.B) {
	for _, c := range []struct{ name, target, credential string }{
		{"bare", readRefs, ""},
		{"refused", pushRefs, "new"},
		{"accepted", readRefs, "new"},
		{"proven", pushRefs, basic("dev", "TOKEN")},
	} {
		b.Run(c.name, func(b *testing.B) {
			policy, _ := admission.Config{}.Compile()
			g, err := New(NewState(policy), Options{})
			if err != nil {
				b.Fatal(err)
			}
			up, served := new(lax), 0
			next := func(w http.ResponseWriter, r *http.Request) error {
				served++
				return up.serve(w, r)
			}
			r := httptest.NewRequest(http.MethodGet, c.target, nil)
			if c.credential != "" {
				r.Header.Set("Authorization", c.credential)
				_ = g.Serve(httptest.NewRecorder(), r, next) // proves it, where it can
			}
			served = 0
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if c.credential == "new" {
					r.Header.Set("Authorization", basic("u", fmt.Sprint("made-up-", i)))
				}
				if err := g.Serve(httptest.NewRecorder(), r, next); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(served)/float64(b.N), "upstream/op")
		})
	}
}
