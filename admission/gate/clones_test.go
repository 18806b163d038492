package gate

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-admission/gateway/admission"
)

func zipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(s))
	_ = z.Close()
	return b.String()
}

// Clones have a cap of their own, in the class and of a repository; whatever is
// cheaper goes past it, however many clones run or wait.
func TestClonesHaveACap(t *testing.T) {
	want := pkt("want 1234567890123456789012345678901234567890 side-band-64k\n")
	done := pkt("done\n")
	clone, fetch := want+"0000"+done, want+"0000"+pkt("have 1234567890123456789012345678901234567890\n")+done
	shallow := want + pkt("deepen 1\n") + "0000" + done
	u := newFakeUpstream()
	cfg := admission.Config{WaitOff: true, Classes: map[string]*admission.ClassConfig{"anonymous": {Clones: ptr(2), RepoClones: ptr(1)}}}
	s := serve(t, cfg, Options{}, u.next)
	release := u.holdOn("/git-upload-pack")
	done2 := make(chan int, 3)
	hold := func(repo, body, addr string) {
		go func() {
			r, _ := s.do(t, ask{method: http.MethodPost, path: repo + "/git-upload-pack", body: body, addr: addr})
			done2 <- r.StatusCode
		}()
		<-u.entered
	}
	refused := func(repo, body, addr string, header map[string]string) {
		t.Helper()
		r, text := s.do(t, ask{method: http.MethodPost, path: repo + "/git-upload-pack", body: body, addr: addr, header: header})
		if r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(r.Header.Get(HeaderRefused), "reason=clones_full") || !strings.Contains(text, "clones") {
			t.Errorf("%d %q %q", r.StatusCode, r.Header.Get(HeaderRefused), text)
		}
	}
	hold("/pub1.git", clone, "192.0.2.1")
	refused("/pub1.git", clone, "192.0.2.2", nil)     // of this repository
	hold("/pub2.git", shallow, "192.0.2.3")           // a shallow clone is one too
	refused("/pub3.git", clone, "192.0.2.4", nil)     // of the class
	refused("/pub3.git", "garbage", "192.0.2.4", nil) // undecided counts as dear
	refused("/pub3.git", zipped(clone), "192.0.2.4", map[string]string{"Content-Encoding": "gzip"})
	hold("/pub1.git", fetch, "192.0.2.5")
	close(release)
	for range 3 {
		if code := <-done2; code != http.StatusOK {
			t.Error(code)
		}
	}
	if r, _ := s.do(t, ask{method: http.MethodPost, path: "/pub1.git/git-upload-pack", body: clone}); r.StatusCode != http.StatusOK {
		t.Errorf("%d after the others are done", r.StatusCode)
	}
}
