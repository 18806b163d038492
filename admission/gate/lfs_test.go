package gate

import (
	"net/http"
	"testing"

	"github.com/caddy-admission/gateway/admission"
)

// TestBareLFSIsAskedForItsCredential: git-lfs begins without the credential
// git already has, so its first calls must not queue behind anonymous load.
// Where strangers are served, they are anonymous as everybody else.
func TestBareLFSIsAskedForItsCredential(t *testing.T) {
	for _, c := range []struct{ name, path, body string }{
		{"batch", "/pub.git/info/lfs/objects/batch", `{"operation":"upload","objects":[]}`},
		{"locks", "/pub.git/info/lfs/locks/verify", `{}`},
	} {
		call := ask{method: http.MethodPost, path: c.path, body: c.body, header: map[string]string{"Content-Type": lfsMediaType}}
		t.Run(c.name+", refused", func(t *testing.T) {
			s := serve(t, admission.Config{}, Options{}, newFakeUpstream().next)
			for range 2 {
				if class := classOf(t, s, call); class != "discovery" {
					t.Errorf("class %s, want discovery", class)
				}
			}
		})
		t.Run(c.name+", served", func(t *testing.T) {
			s := serve(t, admission.Config{}, Options{}, func(w http.ResponseWriter, r *http.Request) error {
				w.Header().Set("Content-Type", lfsMediaType)
				_, err := w.Write([]byte(`{}`))
				return err
			})
			for _, want := range []string{"discovery", "anonymous"} {
				if class := classOf(t, s, call); class != want {
					t.Errorf("class %s, want %s", class, want)
				}
			}
		})
	}
}
