package logout

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

type vector struct {
	ID, Method, Target string
	Headers            []struct{ Name, Value string }
	Body               []byte `json:"body_b64"`
	Now                int64
	Shape              string
	After              string `json:"after_signature"`
	Status             int
	Why                string
}

type vectorFile struct {
	Config struct {
		Issuer  string
		Clients []string `json:"client_ids"`
		Algs    []string
	}
	JWKS    json.RawMessage
	Vectors []vector
}

func readVectors(t testing.TB) *vectorFile {
	t.Helper()
	raw, err := os.ReadFile("testdata/logout-token.json")
	if err != nil {
		t.Fatal(err)
	}
	f := &vectorFile{}
	if err := json.Unmarshal(raw, f); err != nil {
		t.Fatal(err)
	}
	if len(f.Vectors) != 78 {
		t.Fatalf("%d vectors, want 78", len(f.Vectors))
	}
	return f
}

// checker returns a Checker with the file's keys and the fetches it makes.
func (f *vectorFile) checker(t testing.TB) (*Checker, *atomic.Int64) {
	t.Helper()
	fetches := &atomic.Int64{}
	keys, err := NewKeys(KeySource{URL: "https://idp.example.test/keys", Fetch: func(context.Context, string, int64) ([]byte, error) {
		fetches.Add(1)
		return f.JWKS, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	k, err := New(Config{Algorithms: f.Config.Algs, Issuers: []Issuer{{URL: f.Config.Issuer, Clients: f.Config.Clients, Keys: keys}}})
	if err != nil {
		t.Fatal(err)
	}
	return k, fetches
}

func (v vector) request(t testing.TB) *http.Request {
	t.Helper()
	var raw bytes.Buffer
	fmt.Fprintf(&raw, "%s %s HTTP/1.1\r\nHost: x\r\n", v.Method, v.Target)
	for _, h := range v.Headers {
		fmt.Fprintf(&raw, "%s: %s\r\n", h.Name, h.Value)
	}
	raw.WriteString("\r\n")
	r, err := http.ReadRequest(bufio.NewReader(&raw))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (v vector) check(k *Checker, r *http.Request) (*Token, *Refusal) {
	if bad := k.CheckHead(r); bad != nil {
		return nil, bad
	}
	return k.CheckBody(v.Body, time.Unix(v.Now, 0))
}

func TestVectors(t *testing.T) {
	f := readVectors(t)
	k, fetches := f.checker(t)
	for _, v := range f.Vectors {
		t.Run(v.ID, func(t *testing.T) {
			before := fetches.Load()
			token, bad := v.check(k, v.request(t))
			if (bad == nil) != (v.Shape == "pass") {
				t.Fatalf("shape: %v, want %s: %s", bad, v.Shape, v.Why)
			}
			if fetches.Load() != before {
				t.Fatal("the shape check looked up keys")
			}
			if bad == nil {
				bad = token.Verify(context.Background(), time.Unix(v.Now, 0))
			}
			if (bad == nil) != (v.After == "accept") {
				t.Fatalf("signature: %v, want %s: %s", bad, v.After, v.Why)
			}
			if bad != nil && bad.Status() != v.Status {
				t.Fatalf("status %d, want %d", bad.Status(), v.Status)
			}
		})
	}
	if n := fetches.Load(); n != 1 {
		t.Errorf("%d key fetches for all vectors, want 1", n)
	}
}

// Unknown key ids cause one refresh per interval, however many come, and a
// known one never waits for it.
func TestUnknownKeyIDRefreshesOncePerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := readVectors(t)
		k, fetches := f.checker(t)
		start := time.Now()
		at := func(id string) *Token {
			for _, v := range f.Vectors {
				if v.ID == id {
					token, bad := v.check(k, v.request(t))
					if bad != nil {
						t.Fatal(bad)
					}
					return token
				}
			}
			t.Fatal("no vector ", id)
			return nil
		}
		good, unknown := at("rs256-sid-and-sub"), at("kid-unknown")
		if bad := good.Verify(t.Context(), start); bad != nil || fetches.Load() != 1 {
			t.Fatalf("first token: %v after %d fetches", bad, fetches.Load())
		}
		for i := range 600 {
			now := start.Add(time.Duration(i) * time.Second)
			if bad := unknown.Verify(t.Context(), now); bad == nil || bad.Reason() != BadSignature {
				t.Fatalf("unknown key id: %v", bad)
			}
			if bad := good.Verify(t.Context(), now); bad != nil {
				t.Fatalf("genuine token at %d s: %v", i, bad)
			}
		}
		if n := fetches.Load(); n != 10 {
			t.Errorf("%d fetches in 600 s, want 10", n)
		}
	})
}

func TestKeysUnavailable(t *testing.T) {
	f := readVectors(t)
	fail := errors.New("down")
	var answer atomic.Pointer[error]
	answer.Store(&fail)
	keys, _ := NewKeys(KeySource{URL: "https://idp.example.test/keys", Fetch: func(context.Context, string, int64) ([]byte, error) {
		if e := answer.Load(); e != nil {
			return nil, *e
		}
		return f.JWKS, nil
	}})
	k, _ := New(Config{Issuers: []Issuer{{URL: f.Config.Issuer, Keys: keys}}})
	now := time.Unix(f.Vectors[0].Now, 0)
	token, bad := f.Vectors[0].check(k, f.Vectors[0].request(t))
	if bad != nil {
		t.Fatal(bad)
	}
	if bad := token.Verify(context.Background(), now); bad == nil || bad.Reason() != NoKeys || bad.Status() != http.StatusServiceUnavailable {
		t.Fatalf("without keys: %v, want 503", bad)
	}
	answer.Store(nil)
	if bad := token.Verify(context.Background(), now.Add(time.Second)); bad == nil || bad.Reason() != NoKeys {
		t.Fatalf("inside the interval: %v, want no second fetch", bad)
	}
	if bad := token.Verify(context.Background(), now.Add(time.Minute)); bad != nil {
		t.Fatalf("after the interval: %v", bad)
	}
	answer.Store(&fail) // old keys stay when a later fetch fails
	if bad := token.Verify(context.Background(), now.Add(2*time.Hour)); bad != nil {
		t.Fatalf("with the source down again: %v", bad)
	}
}

func TestDiscovery(t *testing.T) {
	f := readVectors(t)
	document := `{"issuer":"https://idp.example.test/realms/dev","jwks_uri":"https://idp.example.test/k"}`
	var asked []string
	keys, _ := NewKeys(KeySource{Issuer: f.Config.Issuer, Fetch: func(_ context.Context, url string, _ int64) ([]byte, error) {
		asked = append(asked, url)
		if len(asked) == 1 {
			return []byte(document), nil
		}
		return f.JWKS, nil
	}})
	set, err := keys.fetch(t.Context())
	if err != nil || len(set) != 2 || asked[1] != "https://idp.example.test/k" {
		t.Fatalf("%d keys, %v, asked %q", len(set), err, asked)
	}
	document, asked = `{"issuer":"https://evil.example.test","jwks_uri":"https://evil.example.test/k"}`, nil
	if _, err := keys.fetch(t.Context()); err == nil || len(asked) != 1 {
		t.Fatalf("another issuer's document: %v, asked %q", err, asked)
	}
}

func TestKeySetIgnoresWhatCannotVerify(t *testing.T) {
	for name, raw := range map[string]string{
		"not json":   `x`,
		"symmetric":  `{"keys":[{"kty":"oct","k":"AAAA"}]}`,
		"encryption": `{"keys":[{"kty":"OKP","crv":"Ed25519","use":"enc","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`,
		"empty":      `{"keys":[]}`,
	} {
		if set, err := parseKeys([]byte(raw)); err == nil {
			t.Errorf("%s: %d keys accepted", name, len(set))
		}
	}
	if set, err := parseKeys([]byte(`{"keys":[{"kty":"XX"},{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`)); err != nil || len(set) != 1 {
		t.Errorf("one usable key among others: %d, %v", len(set), err)
	}
}

func TestTokenNeverPrints(t *testing.T) {
	f := readVectors(t)
	k, _ := f.checker(t)
	token, _ := f.Vectors[0].check(k, f.Vectors[0].request(t))
	for _, verb := range []string{"%v", "%+v", "%s", "%#v"} {
		if s := fmt.Sprintf(verb, token); bytes.Contains([]byte(s), []byte(token.compact[:20])) {
			t.Errorf("%s prints the token", verb)
		}
	}
}

func FuzzCheckBody(f *testing.F) {
	file := readVectors(f)
	k, fetches := file.checker(f)
	for _, v := range file.Vectors {
		f.Add(v.Body)
	}
	now := time.Unix(file.Vectors[0].Now, 0)
	f.Fuzz(func(t *testing.T, body []byte) {
		token, bad := k.CheckBody(body, now)
		if (token == nil) == (bad == nil) {
			t.Fatal("neither or both of token and refusal")
		}
		if fetches.Load() != 0 {
			t.Fatal("the shape check looked up keys")
		}
	})
}
