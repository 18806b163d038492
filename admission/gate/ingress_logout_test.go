package gate

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/logout"
	"github.com/go-jose/go-jose/v4"
)

const testIssuer = "https://idp.example.test/realms/dev"

// provider signs logout tokens and serves its keys.
type provider struct {
	t       testing.TB
	key     ed25519.PrivateKey
	fetches atomic.Int64
	down    atomic.Bool
	jti     atomic.Int64
}

func newProvider(t testing.TB) *provider {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &provider{t: t, key: key}
}

func (p *provider) fetch(context.Context, string, int64) ([]byte, error) {
	p.fetches.Add(1)
	if p.down.Load() {
		return nil, errors.New("down")
	}
	return json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: p.key.Public(), KeyID: "k1", Algorithm: "EdDSA", Use: "sig"}}})
}

func (p *provider) checker() *logout.Checker {
	p.t.Helper()
	keys, err := logout.NewKeys(logout.KeySource{Issuer: testIssuer, URL: "https://idp.example.test/keys", Fetch: p.fetch})
	if err != nil {
		p.t.Fatal(err)
	}
	c, err := logout.New(logout.Config{Issuers: []logout.Issuer{{URL: testIssuer, Keys: keys}}})
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// token returns a signed logout token; forged ones carry another key's
// signature under the same key id, or under kid.
func (p *provider) token(forged bool, kid string) string {
	p.t.Helper()
	key := p.key
	if forged {
		_, key, _ = ed25519.GenerateKey(rand.Reader)
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: key},
		(&jose.SignerOptions{}).WithType("logout+jwt").WithHeader("kid", kid))
	if err != nil {
		p.t.Fatal(err)
	}
	claims := fmt.Sprintf(`{"iss":%q,"aud":"ci","iat":%d,"jti":"%d","sid":"s","events":{"http://schemas.openid.net/event/backchannel-logout":{}}}`,
		testIssuer, time.Now().Unix(), p.jti.Add(1))
	sig, err := s.Sign([]byte(claims))
	if err != nil {
		p.t.Fatal(err)
	}
	compact, err := sig.CompactSerialize()
	if err != nil {
		p.t.Fatal(err)
	}
	return compact
}

func logoutPost(addr, token string) string {
	body := url.Values{"logout_token": {token}}.Encode()
	return fmt.Sprintf("POST /logout HTTP/1.1\r\nHost: x\r\nX-Test-Addr: %s\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s", addr, len(body), body)
}

func logoutCount(s *State, o LogoutOutcome) int64 {
	return s.Ingress.Snapshot().Logouts[o.String()]
}

func logoutLevel(s *State) float64 {
	n, _ := s.Controller.Levels(admission.Logout, time.Now())
	return n
}

func logoutBubble(t *testing.T, p *provider, cfg admission.Config, u *hookReceiver, f func(t *testing.T, s *ingressServer)) {
	t.Helper()
	ingressBubble(t, cfg, func() IngressConfig {
		c := LogoutConfig{Path: "/logout"}
		if p != nil {
			c.Checker = p.checker()
		}
		return IngressConfig{Logouts: []LogoutConfig{c}}
	}, u.next, f)
}

// The relying party's exact status and the exact form pass.
func TestLogoutPassesExactly(t *testing.T) {
	for _, code := range []int{200, 204, 400, 501} {
		p, u := newProvider(t), &hookReceiver{status: code}
		logoutBubble(t, p, admission.Config{}, u, func(t *testing.T, s *ingressServer) {
			token := p.token(false, "k1")
			if got, _ := s.send(logoutPost("192.0.2.1", token)); got != code || u.count() != 1 || u.bodies[0] != "logout_token="+token {
				t.Errorf("%d, want %d; upstream saw %q", got, code, u.bodies)
			}
		})
	}
}

// A malformed logout costs nothing and looks up no key.
func TestLogoutMalformedCostsNothing(t *testing.T) {
	p, u := newProvider(t), &hookReceiver{}
	logoutBubble(t, p, admission.Config{}, u, func(t *testing.T, s *ingressServer) {
		before := logoutLevel(s.state)
		good := p.token(false, "k1")
		for i := range 500 {
			for _, raw := range []string{
				logoutPost("192.0.2.1", "x"), logoutPost("192.0.2.1", good+".x"), logoutPost("192.0.2.1", "."+good),
				strings.Replace(logoutPost("192.0.2.1", good), "form-urlencoded", "x", 1),
			} {
				if code, body := s.send(raw); code != 400 || body != invalidRequest {
					t.Fatalf("malformed %d: %d %q", i, code, body)
				}
			}
		}
		if logoutLevel(s.state) != before || p.fetches.Load() != 0 || u.count() != 0 || logoutCount(s.state, LogoutShape) != 2000 {
			t.Errorf("budget %v → %v, %d fetches", before, logoutLevel(s.state), p.fetches.Load())
		}
		code, _ := s.send("GET /logout HTTP/1.1\r\nHost: x\r\n\r\n")
		if code != http.StatusMethodNotAllowed {
			t.Errorf("GET: %d", code)
		}
	})
}

// Forged logouts as fast as they go, known and unknown key ids: every genuine
// one is answered by the relying party, and keys are fetched once an interval.
func TestForgedLogoutsDoNotBlockValidOnes(t *testing.T) {
	p, u := newProvider(t), &hookReceiver{status: http.StatusNoContent}
	logoutBubble(t, p, admission.Config{}, u, func(t *testing.T, s *ingressServer) {
		stop := make(chan struct{})
		for i := range 20 {
			every(20*time.Millisecond, stop, func(n int) {
				s.fire(logoutPost(fmt.Sprintf("198.51.%d.%d", i, n%200+1), p.token(true, []string{"k1", "other"}[n%2])))
			})
		}
		time.Sleep(time.Second)
		for i := range 20 {
			start := time.Now()
			code, body := s.send(logoutPost(knownAddr, p.token(false, "k1")))
			if code != http.StatusNoContent {
				t.Errorf("genuine logout %d: %d %q", i, code, body)
			}
			if took := time.Since(start); took > 100*time.Millisecond {
				t.Errorf("genuine logout %d took %v", i, took)
			}
			time.Sleep(100 * time.Millisecond)
		}
		close(stop)
		time.Sleep(time.Second)
		if u.count() != 20 || p.fetches.Load() != 1 {
			t.Errorf("upstream saw %d, want 20; %d key fetches, want 1", u.count(), p.fetches.Load())
		}
		if logoutCount(s.state, LogoutForged) == 0 || logoutCount(s.state, LogoutForgedLimited) == 0 {
			t.Errorf("%v", s.state.Ingress.Snapshot().Logouts)
		}
	})
}

// Forged tokens spend the forged budget only.
func TestForgedBudgetIsApart(t *testing.T) {
	p, u := newProvider(t), &hookReceiver{}
	logoutBubble(t, p, admission.Config{}, u, func(t *testing.T, s *ingressServer) {
		before := logoutLevel(s.state)
		codes := map[int]int{}
		for range 80 {
			code, _ := s.send(logoutPost("198.51.100.1", p.token(true, "k1")))
			codes[code]++
		}
		if codes[400] != 64 || codes[503] != 16 {
			t.Errorf("forged ones got %v, want 64 × 400 and 16 × 503", codes)
		}
		if logoutLevel(s.state) != before || u.count() != 0 {
			t.Errorf("the genuine budget went from %v to %v", before, logoutLevel(s.state))
		}
	})
}

// Without keys the groups whose logouts a relying party accepted keep the last
// quarter of the budget.
func TestLogoutWithoutKeys(t *testing.T) {
	p, u := newProvider(t), &hookReceiver{}
	cfg := admission.Config{Classes: map[string]*admission.ClassConfig{"logout": {Bucket: &admission.BucketConfig{Burst: 16, PerSecond: 0.01}}}}
	logoutBubble(t, nil, cfg, u, func(t *testing.T, s *ingressServer) {
		if code, _ := s.send(logoutPost(knownAddr, p.token(false, "k1"))); code != 200 {
			t.Fatalf("first: %d", code)
		}
		u.mu.Lock()
		u.status = 400 // what a relying party answers to forged ones
		u.mu.Unlock()
		passed := 0
		for range 30 {
			if code, _ := s.send(logoutPost("198.51.100.1", p.token(true, "k1"))); code == 400 {
				passed++
			}
		}
		if passed != 11 {
			t.Errorf("%d forged ones passed, want 11 of 16 less one", passed)
		}
		if code, _ := s.send(logoutPost(knownAddr, p.token(false, "k1"))); code != 400 {
			t.Errorf("known group: %d, want it at the relying party", code)
		}
	})
}

// A logout waits up to a second for a place; the deadline holds for all of it.
func TestLogoutWaitsAndEnds(t *testing.T) {
	p, u := newProvider(t), &hookReceiver{}
	logoutBubble(t, p, admission.Config{}, u, func(t *testing.T, s *ingressServer) {
		u.hold = make(chan struct{})
		answers := make(chan int, 8)
		for range 5 {
			go func() { code, _ := s.send(logoutPost(knownAddr, p.token(false, "k1"))); answers <- code }()
		}
		time.Sleep(500 * time.Millisecond)
		if u.count() != 4 {
			t.Fatalf("%d at the relying party, want 4", u.count())
		}
		close(u.hold)
		for range 5 {
			if code := <-answers; code != 200 {
				t.Errorf("%d, want 200 for the four and the one that waited", code)
			}
		}
		u.mu.Lock()
		u.hold = make(chan struct{})
		u.mu.Unlock()
		start := time.Now()
		for range 5 {
			go func() { code, _ := s.send(logoutPost(knownAddr, p.token(false, "k1"))); answers <- code }()
		}
		codes := map[int]int{}
		for range 5 {
			codes[<-answers]++
		}
		if codes[503] != 1 || codes[504] != 4 || time.Since(start) != 2*time.Second {
			t.Errorf("hanging relying party: %v after %v, want one 503 and four 504 after 2 s", codes, time.Since(start))
		}
	})
}

func TestLogoutKeysDown(t *testing.T) {
	p, u := newProvider(t), &hookReceiver{}
	p.down.Store(true)
	logoutBubble(t, p, admission.Config{}, u, func(t *testing.T, s *ingressServer) {
		c := s.open(logoutPost(knownAddr, p.token(false, "k1")))
		r, body := answerOf(t, c)
		_ = c.Close()
		if r.StatusCode != 503 || r.Header.Get("Retry-After") != "1" || r.Header.Get("Cache-Control") != "no-store" || body != "logout overloaded" || logoutCount(s.state, LogoutNoKeys) != 1 {
			t.Errorf("%d %q %v", r.StatusCode, body, r.Header)
		}
	})
}

// More trickling logouts than the table holds end the oldest, not the newest.
func TestLogoutReadersAreBounded(t *testing.T) {
	p, u := newProvider(t), &hookReceiver{}
	logoutBubble(t, p, admission.Config{}, u, func(t *testing.T, s *ingressServer) {
		head := "POST /logout HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\n"
		for range readersMax + 50 {
			go s.fire(head)
		}
		synctest.Wait()
		s.state.Ingress.mu.Lock()
		n := len(s.state.Ingress.readers)
		s.state.Ingress.mu.Unlock()
		if n > readersMax {
			t.Errorf("%d readers, want at most %d", n, readersMax)
		}
		if code, _ := s.send(logoutPost(knownAddr, p.token(false, "k1"))); code != 200 {
			t.Errorf("genuine logout among them: %d", code)
		}
	})
}
