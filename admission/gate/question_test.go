package gate

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"sync"
	"testing"

	"github.com/caddy-admission/gateway/admission"
)

func classOf(t *testing.T, s *testServer, a ask) string {
	t.Helper()
	before := s.state.Controller.Snapshot()
	s.do(t, a)
	after := s.state.Controller.Snapshot()
	for i := range after.Classes {
		for d := range after.Decisions[i] {
			if after.Decisions[i][d] != before.Decisions[i][d] {
				return after.Classes[i].Class.String()
			}
		}
	}
	return "other"
}

// TestProofByAsking: a client that always sends its credential (actions,
// go-git, http.extraHeader) is proven by its first accepted request.
func TestProofByAsking(t *testing.T) {
	u := newFakeUpstream()
	s := serve(t, admission.Config{}, Options{}, u.next)
	dev := ask{path: pushRefs, user: "dev", pass: "pw"}
	if c := classOf(t, s, dev); c != "candidate" {
		t.Errorf("first: %s, want candidate", c)
	}
	if n := u.count("GET " + pushRefs + " "); n != 1 {
		t.Errorf("the question was asked %d times, want 1", n)
	}
	if c := classOf(t, s, dev); c != "push" {
		t.Errorf("second: %s, want push", c)
	}
	// The same secret from elsewhere is nobody's proof.
	dev.addr = "203.0.113.77"
	if c := classOf(t, s, dev); c != "candidate" {
		t.Errorf("from another group: %s, want candidate", c)
	}
}

// TestBareRequestIsTheAnswer: a client that asked without a credential first
// saves the question.
func TestBareRequestIsTheAnswer(t *testing.T) {
	u := newFakeUpstream()
	s := serve(t, admission.Config{}, Options{}, u.next)
	signIn(t, s, "dev", "pw", "")
	if n := u.count("GET " + pushRefs + " "); n != 1 {
		t.Errorf("%d bare requests reached the upstream, want the client's own", n)
	}
	if c := classOf(t, s, ask{path: pushRefs, user: "dev", pass: "pw"}); c != "push" {
		t.Errorf("got %s, want push", c)
	}
}

// TestOpenRepositoryProvesNothing: where everybody is accepted, acceptance says
// nothing, and the upstream is asked once in a while, not every time.
func TestOpenRepositoryProvesNothing(t *testing.T) {
	u := newFakeUpstream()
	u.any = true
	s := serve(t, admission.Config{}, Options{}, u.next)
	for range 20 {
		if c := classOf(t, s, ask{path: pushRefs, user: "x", pass: "made-up"}); c != "candidate" {
			t.Fatalf("got %s, want candidate", c)
		}
	}
	if n := u.count("GET " + pushRefs + " "); n != 1 {
		t.Errorf("the question was asked %d times, want 1", n)
	}
}

// TestRevokedCredential: a 401 on what a proof had opened ends it; a new
// credential is proven by its first request.
func TestRevokedCredential(t *testing.T) {
	u := newFakeUpstream()
	revoked := false
	s := serve(t, admission.Config{}, Options{}, func(w http.ResponseWriter, r *http.Request) error {
		if _, secret, _ := r.BasicAuth(); revoked && secret == "pw" {
			r.Header.Del("Authorization")
		}
		return u.next(w, r)
	})
	dev := ask{path: pushRefs, user: "dev", pass: "pw"}
	s.do(t, dev)
	if c := classOf(t, s, dev); c != "push" {
		t.Fatalf("got %s, want push", c)
	}
	revoked = true
	if r, _ := s.do(t, dev); r.StatusCode != http.StatusUnauthorized {
		t.Fatalf("revoked: %d, want the upstream's 401", r.StatusCode)
	}
	if c := classOf(t, s, dev); c != "candidate" {
		t.Errorf("after the 401: %s, want candidate", c)
	}
	renewed := ask{path: pushRefs, user: "bob", pass: "pw2"}
	s.do(t, renewed)
	if c := classOf(t, s, renewed); c != "push" {
		t.Errorf("with the new one: %s, want push", c)
	}
}

// TestLFSBatchProves: the batch body is repeated for the question and reaches
// the upstream unchanged both times.
func TestLFSBatchProves(t *testing.T) {
	u := newFakeUpstream()
	var mu sync.Mutex
	var bodies []string
	s := serve(t, admission.Config{}, Options{}, func(w http.ResponseWriter, r *http.Request) error {
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body)
		mu.Lock()
		bodies = append(bodies, b.String())
		mu.Unlock()
		r.Body = http.NoBody
		return u.next(w, r)
	})
	batch := ask{
		method: http.MethodPost, path: "/pub.git/info/lfs/objects/batch", user: "dev", pass: "pw",
		body: `{"operation":"upload","objects":[]}`, header: map[string]string{"Content-Type": lfsMediaType},
	}
	if c := classOf(t, s, batch); c != "candidate" {
		t.Errorf("first batch: %s, want candidate", c)
	}
	if c := classOf(t, s, batch); c != "read" {
		t.Errorf("second batch: %s, want read", c)
	}
	for i, b := range bodies {
		if b != batch.body {
			t.Errorf("body %d reached the upstream as %q", i, b)
		}
	}
	if len(bodies) != 3 {
		t.Errorf("%d requests reached the upstream, want batch, question, batch", len(bodies))
	}
}

func TestAcceptedAnswers(t *testing.T) {
	adv := func(s string) http.Header {
		return http.Header{"Content-Type": {"application/x-" + s + "-advertisement"}}
	}
	sub := &subject{}
	sub.result.Kind, sub.result.Service = 2, "git-receive-pack" // classify.PushDiscovery
	start := pkt("# service=git-receive-pack\n") + "0000"
	var z bytes.Buffer
	zw := gzip.NewWriter(&z)
	_, _ = zw.Write([]byte(start + pkt("ERR no")))
	_ = zw.Close()
	zipped := adv("git-receive-pack")
	zipped.Set("Content-Encoding", "gzip")
	brotli := adv("git-receive-pack")
	brotli.Set("Content-Encoding", "br")
	for _, c := range []struct {
		name   string
		status int
		h      http.Header
		body   string
		want   bool
	}{
		{"real", 200, adv("git-receive-pack"), start + pkt("0000 capabilities^{}"), true},
		{"without a service line", 200, adv("git-receive-pack"), pkt("version 2\n"), true},
		{"other service", 200, adv("git-upload-pack"), start, false},
		{"html", 200, http.Header{"Content-Type": {"text/html"}}, "<html>", false},
		{"not packets", 200, adv("git-receive-pack"), "<html>", false},
		{"201", 201, adv("git-receive-pack"), start, false},
		{"gitolite refusal", 200, adv("git-receive-pack"), start + pkt("ERR FATAL: W any pub dev DENIED"), false},
		{"bare refusal", 200, adv("git-receive-pack"), pkt("ERR nothing here"), false},
		{"refusal, gzip", 200, zipped, z.String(), false},
		{"unreadable", 200, brotli, start, false},
	} {
		if got := accepted(sub, c.status, c.h, []byte(c.body)); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
