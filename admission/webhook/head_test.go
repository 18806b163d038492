package webhook

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// ordered are faults in the order in which they must be found: with all of
// them in one request, taking away the first shows the next.
var ordered = []struct {
	reason Reason
	fault  func(h *faulty)
}{
	{BadMethod, func(h *faulty) { h.method = "PUT" }},
	{TooLarge, func(h *faulty) { h.length = MaxBodyForm + 1 }},
	{BadContentType, func(h *faulty) { h.Set("Content-Type", "text/plain") }},
	{BadEncoding, func(h *faulty) { h.Set("Content-Encoding", "gzip") }},
	{HeaderAlias, func(h *faulty) { h.Header["X_gitea_signature"] = []string{"x"} }},
	{BadSignature, func(h *faulty) { h.Add("X-Gitea-Signature", "second") }},
	{BadCompanion, func(h *faulty) { h.Set("X-Hub-Signature", "sha1=xx") }},
	{ForeignHeader, func(h *faulty) { h.Set("X-Payload-Signature", "x") }},
	{BadHeader, func(h *faulty) { h.Del("X-Gitea-Event") }},
}

type faulty struct {
	http.Header
	method string
	length int64
}

func TestOrderOfChecks(t *testing.T) {
	p, _ := Lookup("gitea")
	s, _ := NewSecrets("secret")
	v, err := New(p, s, 0)
	if err != nil {
		t.Fatal(err)
	}
	for first := 0; first <= len(ordered); first++ {
		h := faulty{Header: http.Header{}, method: http.MethodPost, length: 10}
		h.Set("Content-Type", "application/json")
		h.Set("X-Gitea-Signature", strings.Repeat("0", 64))
		h.Set("X-Gitea-Event", "push")
		h.Set("X-Gitea-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
		for _, o := range ordered[first:] {
			o.fault(&h)
		}
		r := &http.Request{Method: h.method, ContentLength: h.length, Header: h.Header, URL: &url.URL{Path: "/"}, Body: untouchable{t}}
		_, bad := v.CheckHead(r, time.Now())
		switch {
		case first == len(ordered) && bad != nil:
			t.Errorf("without a fault: %v", bad.Reason())
		case first < len(ordered) && (bad == nil || bad.Reason() != ordered[first].reason):
			t.Errorf("faults from %s on: got %s", ordered[first].reason, describe(bad))
		}
	}
}

type untouchable struct{ t *testing.T }

func (u untouchable) Read([]byte) (int, error) { u.t.Error("the body was read"); return 0, io.EOF }
func (u untouchable) Close() error             { return nil }

func TestAliases(t *testing.T) {
	p, _ := Lookup("gitea")
	s, _ := NewSecrets("secret")
	v, _ := New(p, s, 0)
	base := captured(t, "testdata/gitea/push-main.json")
	for name, refused := range map[string]bool{
		"X_Gitea_Signature": true, "x.gitea.signature": true, "X_Gitea-Delivery": true, "X-GITEA_EVENT": true,
		"X.Hub.Signature.256": true, "Webhook_Signature": true, "Content_Type": true, "Content.Length": true,
		"X_Forwarded_For": false, "X_Request_Id": false, "X-Gitea-Signatur_e": false,
	} {
		r := base.request(t)
		r.Header[http.CanonicalHeaderKey(name)] = []string{"x"}
		_, bad := v.CheckHead(r, time.Now())
		if got := bad != nil && bad.Reason() == HeaderAlias; got != refused {
			t.Errorf("%s: refused %t, want %t", name, got, refused)
		}
	}
}

func TestGeneric(t *testing.T) {
	for _, bad := range []struct{ header, prefix, alg string }{
		{"", "", "sha256"}, {"X_Sig", "", "sha256"}, {"X-Sig", "", "md5"}, {"Content-Type", "", "sha256"},
		{"X-Sig", "a\nb", "sha256"}, {"X-Sig", strings.Repeat("x", 65), "sha256"},
	} {
		if _, err := Generic(bad.header, bad.prefix, Algorithm(bad.alg)); err == nil {
			t.Errorf("%+v accepted", bad)
		}
	}
	body := []byte(`{"repository":{"full_name":"a/b"}}`)
	s, _ := NewSecrets("the generic secret")
	for alg, value := range map[Algorithm]string{
		SHA256:       "v=" + hex.EncodeToString(macOf(SHA256.new(), []byte("the generic secret"), body, false)),
		SHA1:         "v=" + hex.EncodeToString(macOf(SHA1.new(), []byte("the generic secret"), body, false)),
		SHA512:       "v=" + hex.EncodeToString(macOf(SHA512.new(), []byte("the generic secret"), body, false)),
		GenericToken: "v=the-generic-token",
	} {
		secrets := s
		if alg == GenericToken {
			secrets, _ = NewSecrets("the-generic-token")
		}
		p, err := Generic("x-my-sig", "v=", alg)
		if err != nil {
			t.Fatal(err)
		}
		v, err := New(p, secrets, 0)
		if err != nil {
			t.Fatal(err)
		}
		check := func(value string) (Delivery, *Refusal) {
			r := &http.Request{Method: http.MethodPost, ContentLength: int64(len(body)), URL: &url.URL{},
				Header: http.Header{"Content-Type": {"application/json"}, "X-My-Sig": {value}}}
			return v.Check(r, body, time.Now())
		}
		if d, bad := check(value); bad != nil || d.Repository != "a/b" || !d.Verified {
			t.Errorf("%s: %s %+v", alg, describe(bad), d)
		}
		flipped := value[:len(value)-1] + string(value[len(value)-1]^1)
		if _, bad := check(flipped); bad == nil || bad.Status() != 401 {
			t.Errorf("%s: a wrong value was %s", alg, describe(bad))
		}
	}
}

func TestMaxBodyLowersTheCap(t *testing.T) {
	p, _ := Lookup("github")
	s, _ := NewSecrets("secret")
	v, err := New(p, s, 100)
	if err != nil {
		t.Fatal(err)
	}
	base := readVectors(t, "webhook-kat.json")[1]
	for length, want := range map[int64]Reason{100: 0, 101: TooLarge} {
		r := base.request(t)
		r.ContentLength = length
		h, bad := v.CheckHead(r, time.Now())
		if want == 0 && (bad != nil || h.Limit() != 100 || h.Charge(-1) != 100 || h.Charge(7) != 7) || want != 0 && (bad == nil || bad.Reason() != want) {
			t.Errorf("length %d: %s", length, describe(bad))
		}
	}
	if _, err := New(p, s, MaxBodyForm+1); err == nil {
		t.Error("a cap above every profile's was accepted")
	}
}

func TestPayloadForm(t *testing.T) {
	for body, ok := range map[string]bool{
		"payload=%7B%7D": true, "payload=a+b": true, "payload=": false, "payload": false, "Payload=x": false,
		"payload=x&": false, "payload=x&y=1": false, "&payload=x": false, "payload=x;y=1": false, "%70ayload=x": false,
		"payload=%7": false, "payload=%zz": false, "payload=a b": false, "payload=a=b": false, "payload=\x80": false,
	} {
		if payloadForm([]byte(body)) != ok {
			t.Errorf("%q: %t, want %t", body, !ok, ok)
		}
	}
}

func TestFacts(t *testing.T) {
	for body, name := range map[string]string{
		`{"repository":{"full_name":"o/r"}}`: "o/r",
		` { "x" : [ {"repository":{"full_name":"no"}} ], "repository":{"id":1,"full_name":"o/r"}}`: "o/r",
		`{"repository":{"owner":{"full_name":"no"},"full_name":"o\u002fr"}}`:                       "o/r",
		`{"full_name":"no","repository":null}`:                                                     "",
		`{"repository":"o/r"}`:                                                                     "",
		`{"repository":{"full_name":7}}`:                                                           "",
		`{"commits":["}","\"{"],"n":-1.5e3,"t":true,"repository":{"full_name":"o/r"}}`:             "o/r",
		`[{"repository":{"full_name":"o/r"}}]`:                                                     "",
		`{"repository":{"full_name":"` + strings.Repeat("x", 300) + `"}}`:                          "",
		`{"repository":{"full_name":"` + strings.Repeat(`\n`, 5000) + `","x":1},"y":{}}`:           "",
		`{"` + strings.Repeat(`\"`, 5000) + `":"}","repository":{"full_name":"o/r"}}`:              "o/r",
		`{"repository":{"full_name":"o/r`:                                                          "",
		``:                                                                                         "",
		`not json`:                                                                                 "",
	} {
		for _, form := range []bool{false, true} {
			text := body
			if form {
				text = "payload=" + url.QueryEscape(body)
			}
			var got string
			findMembers(newScanner([]byte(text), form), []want{{path{"repository", "full_name"}, &got}})
			if got != name {
				t.Errorf("%q (form %t): %q, want %q", body, form, got, name)
			}
		}
	}
}

// Every reason has a name, a status of the allowed four, a stage and a text.
func TestReasonsAreClosed(t *testing.T) {
	names := map[string]bool{}
	for r := Reason(1); r < numReasons; r++ {
		bad := refuse(r)
		if r.String() == "" || names[r.String()] || bad.Error() == "" || bad.Stage() == "" {
			t.Errorf("reason %d: %q %q %q", r, r, bad.Error(), bad.Stage())
		}
		names[r.String()] = true
		switch bad.Status() {
		case 400, 401, 405, 413:
		default:
			t.Errorf("%s answers %d", r, bad.Status())
		}
	}
}

func FuzzHead(f *testing.F) {
	for _, name := range []string{"webhook-kat.json", "webhook-malformed.json"} {
		for _, v := range readVectors(f, name) {
			var b strings.Builder
			fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", v.Method, v.Target)
			for _, h := range v.Headers {
				fmt.Fprintf(&b, "%s: %s\r\n", h.Name, h.bytes(f))
			}
			f.Add(b.String()+"\r\n", v.Body)
		}
	}
	var verifiers []*Verifier
	for _, name := range Names() {
		p, _ := Lookup(name)
		var s Secrets
		if p.NeedsSecret() {
			secret := map[Auth]string{Standard: "whsec_AAAA", Ed25519: "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=", Basic: "u:p"}[p.Auth]
			if secret == "" {
				secret = "an-unguessable-secret"
			}
			s, _ = NewSecrets(secret)
		}
		v, err := New(p, s, 0)
		if err != nil {
			f.Fatal(err)
		}
		verifiers = append(verifiers, v)
	}
	f.Fuzz(func(t *testing.T, raw string, body []byte) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			return
		}
		for _, v := range verifiers {
			d, bad := v.Check(r, body, time.Unix(1765000000, 0))
			if bad != nil {
				continue
			}
			if d.Verified && v.profile.Auth == HMAC {
				t.Fatalf("%s: verified without the secret", v.profile.Name)
			}
			if len(d.Repository) > maxFact || len(r.Header[v.profile.canonical.name]) > 1 {
				t.Fatalf("%s: accepted %q", v.profile.Name, raw)
			}
		}
	})
}

func FuzzForm(f *testing.F) {
	f.Add([]byte("payload=%7B%22repository%22%3A%7B%22full_name%22%3A%22o%2Fr%22%7D%7D"))
	f.Add([]byte("payload=a+b%"))
	f.Add([]byte(`{"repository":{"full_name":"o/r"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var got string
		for _, form := range []bool{false, true} {
			findMembers(newScanner(body, form), []want{{path{"repository", "full_name"}, &got}})
		}
		if !payloadForm(body) {
			return
		}
		values, err := url.ParseQuery(string(body))
		if err != nil || len(values) != 1 || len(values["payload"]) != 1 {
			t.Fatalf("%q passes but is %v, %v", body, values, err)
		}
		ours, theirs := macOf(sha256.New, []byte("k"), body, true), macOf(sha256.New, []byte("k"), []byte(values.Get("payload")), false)
		if !hmac.Equal(ours, theirs) {
			t.Fatalf("%q decodes differently", body)
		}
	})
}

func TestSecretHeader(t *testing.T) {
	own, err := Generic("X-My-Token", "", GenericToken)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{"generic": own.SecretHeader()}
	for _, name := range Names() {
		p, _ := Lookup(name)
		if h := p.SecretHeader(); h != "" {
			got[name] = h
		}
	}
	want := map[string]string{"generic": "X-My-Token", "gitlab-token": "X-Gitlab-Token", "azure-devops": "Authorization"}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
