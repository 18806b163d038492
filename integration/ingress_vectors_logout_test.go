package integration

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// logoutVectors is the file of logout tokens that the engine's tests use too.
type logoutVectors struct {
	Config struct {
		Issuer  string
		Clients []string `json:"client_ids"`
	}
	JWKS    json.RawMessage
	Vectors []*logoutVector
}

type logoutVector struct {
	ID, Method, Target string
	Headers            []struct{ Name, Value string }
	Body               []byte `json:"body_b64"`
	Now                int64
	Shape              string
	After              string `json:"after_signature"`
	Status             int
	Why                string
}

// provider signs logout tokens and publishes its keys, as an identity provider does.
type provider struct {
	rsa     *rsa.PrivateKey
	ec      *ecdsa.PrivateKey
	url     string
	fetches atomic.Int64
}

func startProvider(t testing.TB) *provider {
	t.Helper()
	p := &provider{}
	var err error
	if p.rsa, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	if p.ec, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	point, err := p.ec.PublicKey.Bytes() // 4, x, y
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	keys := map[string]any{"keys": []any{
		map[string]string{"kty": "RSA", "kid": "r1", "use": "sig", "alg": "RS256", "n": b64(p.rsa.N.Bytes()), "e": b64(big.NewInt(int64(p.rsa.E)).Bytes())},
		map[string]string{"kty": "EC", "kid": "e1", "use": "sig", "alg": "ES256", "crv": "P-256", "x": b64(point[1:33]), "y": b64(point[33:])},
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p.fetches.Add(1)
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(keys)
	}))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// sign signs "header.claims" with the key of alg.
func (p *provider) sign(t testing.TB, alg, signed string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(signed))
	var raw []byte
	var err error
	if alg == "ES256" {
		var r, s *big.Int
		if r, s, err = ecdsa.Sign(rand.Reader, p.ec, sum[:]); err == nil {
			raw = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
		}
	} else {
		raw, err = rsa.SignPKCS1v15(nil, p.rsa, crypto.SHA256, sum[:])
	}
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

var (
	compactToken = regexp.MustCompile(`([A-Za-z0-9_-]{10,})\.([A-Za-z0-9_-]{10,})\.([A-Za-z0-9_-]*)`)
	numericDate  = regexp.MustCompile(`\b176[0-9]{7}\b`)
	algorithm    = regexp.MustCompile(`"alg":"([A-Z]+256)"`)
)

// moveToNow moves the times in a token from the vector's clock to today's. The file's private keys are not known, so a token is
// signed with p's keys when resign says so; otherwise it keeps its signature, which no key of p made.
func (p *provider) moveToNow(t testing.TB, text string, now int64, resign bool) (moved string, tokens int) {
	moved = compactToken.ReplaceAllStringFunc(text, func(token string) string {
		part := strings.Split(token, ".")
		head, err1 := base64.RawURLEncoding.DecodeString(part[0])
		claims, err2 := base64.RawURLEncoding.DecodeString(part[1])
		if err1 != nil || err2 != nil || !numericDate.Match(claims) {
			return token
		}
		tokens++
		claims = numericDate.ReplaceAllFunc(claims, func(old []byte) []byte {
			n, _ := strconv.ParseInt(string(old), 10, 64)
			return strconv.AppendInt(nil, time.Now().Unix()+n-now, 10)
		})
		signed := part[0] + "." + base64.RawURLEncoding.EncodeToString(claims)
		if m := algorithm.FindSubmatch(head); m != nil && resign {
			part[2] = p.sign(t, string(m[1]), signed)
		}
		return signed + "." + part[2]
	})
	return moved, tokens
}

// TestLogoutVectorsThroughTheGateway sends every known logout token through the running gateway. What is malformed or forged
// costs nothing of the budget and never reaches the relying party; what is genuine reaches it byte for byte. The keys are
// fetched once for all of them, and not for a malformed one.
func TestLogoutVectorsThroughTheGateway(t *testing.T) {
	var file logoutVectors
	readJSON(t, &file, "logout", "testdata", "logout-token.json")
	if len(file.Vectors) != 78 {
		t.Fatalf("%d vectors, want 78", len(file.Vectors))
	}
	p, party := startProvider(t), harness.StartReceiver(t)
	s := startIngress(t, party.Addr, fmt.Sprintf(`class logout {
 bucket 100000 0.001/s
}
logout /oidc/backchannel-logout {
 issuer %s {
  jwks %s
  clients %s
 }
}`, file.Config.Issuer, p.url, strings.Join(file.Config.Clients, " ")))
	// malformed ones first: they must not fetch keys
	slices.SortStableFunc(file.Vectors, func(a, b *logoutVector) int { return -strings.Compare(a.Shape, b.Shape) })
	moved := 0
	for i, v := range file.Vectors {
		if v.Shape == "pass" && (i == 0 || file.Vectors[i-1].Shape != "pass") && p.fetches.Load() != 0 {
			t.Errorf("%d key fetches before the first well-formed token", p.fetches.Load())
		}
		t.Run(v.ID, func(t *testing.T) { moved += s.logoutVector(t, p, party, v) })
	}
	if n := p.fetches.Load(); n != 1 {
		t.Errorf("%d key fetches, want 1", n)
	}
	if moved < 60 {
		t.Errorf("only %d tokens could be moved to today", moved)
	}
}

func (s *ingressSite) logoutVector(t *testing.T, p *provider, party *harness.Receiver, v *logoutVector) int {
	// A refused shape is signed rightly, so that nothing but its shape is wrong.
	body, moved := p.moveToNow(t, string(v.Body), v.Now, v.After == "accept" || v.Shape == "refuse" && !strings.Contains(v.ID, "signature"))
	target, inQuery := p.moveToNow(t, v.Target, v.Now, true)
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: forge.example.test\r\n", v.Method, target)
	for _, h := range v.Headers {
		if h.Name == "Content-Length" && h.Value == strconv.Itoa(len(v.Body)) {
			h.Value = strconv.Itoa(len(body))
		}
		head += h.Name + ": " + h.Value + "\r\n"
	}
	before, arrived := s.ingressState(t, "logout"), party.Count()
	r := mustPost(t, s.addr, head+"\r\n", body)
	want, status, spent := "shape", v.Status, 0.0
	switch {
	case v.After == "accept":
		want, status, spent = "delivered", http.StatusOK, 1
	case v.Shape == "pass":
		want = "forged"
	}
	if r.StatusCode != status {
		t.Errorf("answered %d %q, want %d: %s", r.StatusCode, r.body, status, v.Why)
	}
	harness.Eventually(t, 10*time.Second, "the logout's place in the state", func() error {
		got := changeOf(before, s.ingressState(t, "logout"), "logout")
		if got.inUse != 0 || len(got.logouts) != 1 || got.logouts[want] != 1 || !near(got.requests, spent) {
			return fmt.Errorf("got %+v, want one %s and %v requests spent", got, want, spent)
		}
		return nil
	})
	switch seen := party.All()[arrived:]; {
	case spent == 0 && len(seen) > 0:
		t.Error("the relying party saw a refused logout")
	case spent == 1 && (len(seen) != 1 || string(seen[0].Body) != body):
		t.Errorf("the relying party did not see the body as it was sent")
	}
	return moved + inQuery
}
