package caddymodule

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/admission/spool"
	"github.com/caddy-admission/gateway/admission/webhook"
)

const (
	hookSecret = "a secret of some length"
	hookToken  = "a-token-of-some-length"
)

// receiver stands for a CI server. It answers status while it is set, holds
// requests while hold is, and takes deliveries otherwise.
type receiver struct {
	*httptest.Server
	arrived chan string // delivery ids, in order of arrival

	mu     sync.Mutex
	status int
	hold   chan struct{}
	header http.Header // of the newest delivery
	path   string
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{arrived: make(chan string, 1000)}
	r.Server = httptest.NewServer(http.HandlerFunc(r.take))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) take(w http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	r.mu.Lock()
	r.header, r.path = req.Header, req.URL.RequestURI()
	status, hold := r.status, r.hold
	r.mu.Unlock()
	r.arrived <- req.Header.Get("X-Github-Delivery") + req.Header.Get("Idempotency-Key")
	if hold != nil {
		select {
		case <-hold:
		case <-req.Context().Done():
		}
	}
	if status != 0 {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", "text/x-receiver")
	_, _ = io.WriteString(w, "taken")
}

func (r *receiver) behave(status int, hold chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status, r.hold = status, hold
}

// last is the newest delivery's header and target.
func (r *receiver) last() (http.Header, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.header, r.path
}

// secretFile writes a secret that one profile uses.
func secretFile(t *testing.T, secret string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// hookSite is a site with one hook for GitHub.
func hookSite(t *testing.T, pool, dir, keep, url string) string {
	t.Helper()
	return fmt.Sprintf(`admission %s {
		webhook /hooks/ci {
			profile github
			secret_file %s
			keep %s
			deliver %s/build {
				fresh_wait 7s
			}
		}
		spool %s
	}
	test_upstream`, pool, secretFile(t, hookSecret), keep, url, dir)
}

func deliveryID(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// deliver sends one delivery of GitHub and returns the status.
func (s *server) deliver(n int, repository string) (int, string) {
	s.t.Helper()
	resp, body := s.post("/hooks/ci", fmt.Sprintf(`{"n":%d,"repository":{"full_name":%q}}`, n, repository), deliveryID(n))
	return resp.StatusCode, body
}

func (s *server) post(path, payload, id string) (*http.Response, string) {
	s.t.Helper()
	resp, body, err := s.tryPost(path, payload, id)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp, body
}

func (s *server) tryPost(path, payload, id string) (*http.Response, string, error) {
	mac := hmac.New(sha256.New, []byte(hookSecret))
	mac.Write([]byte(payload))
	r, err := http.NewRequest(http.MethodPost, "http://"+s.addr+path, strings.NewReader(payload))
	if err != nil {
		return nil, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-GitHub-Event", "push")
	r.Header.Set("X-GitHub-Delivery", id)
	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	resp, err := client.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return resp, string(b), err
}

// kept lists what a pool keeps, as the senders number it.
func kept(t *testing.T, pool string) (dir string, ids []string) {
	t.Helper()
	for _, k := range keepers.list() {
		if k.pool == pool {
			for _, it := range k.sp.List(spool.Filter{}) {
				ids = append(ids, it.Delivery)
			}
			return k.sp.Dir(), ids
		}
	}
	return "", nil
}

func nothing(http.ResponseWriter, *http.Request) {}

func webhookSecrets(t *testing.T) webhook.Secrets {
	t.Helper()
	s, err := webhook.NewSecrets(hookSecret)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// waitFor waits until ok holds; it fails with the test's own time limit.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
	}
}
