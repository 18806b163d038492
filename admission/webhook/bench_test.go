package webhook

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

func benchVerifier(b *testing.B, profile string) *Verifier {
	b.Helper()
	p, _ := Lookup(profile)
	s, err := NewSecrets("a benchmark secret")
	if err != nil {
		b.Fatal(err)
	}
	v, err := New(p, s, 0)
	if err != nil {
		b.Fatal(err)
	}
	return v
}

// benchRequest is what GitHub or Gitea really send: both or all signatures.
func benchRequest(profile string, body []byte) *http.Request {
	hexOf := func(sum []byte) string { return hex.EncodeToString(sum) }
	m1, m256 := hmac.New(sha1.New, []byte("a benchmark secret")), hmac.New(sha256.New, []byte("a benchmark secret"))
	m1.Write(body)
	m256.Write(body)
	s1, s256 := hexOf(m1.Sum(nil)), hexOf(m256.Sum(nil))
	h := http.Header{"Content-Type": {"application/json"}, "User-Agent": {"GitHub-Hookshot/044aadd"}, "Accept": {"*/*"},
		"X-Hub-Signature": {"sha1=" + s1}, "X-Hub-Signature-256": {"sha256=" + s256},
		"X-Github-Event": {"push"}, "X-Github-Delivery": {"72d3162e-cc78-11e3-81ab-4c9367dc0958"}}
	if profile == "gitea" {
		h.Set("X-Gitea-Signature", s256)
		h.Set("X-Gogs-Signature", s256)
		h.Set("X-Gitea-Event", "push")
		h.Set("X-Gitea-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
	}
	return &http.Request{Method: http.MethodPost, ContentLength: int64(len(body)), Header: h, URL: &url.URL{Path: "/hooks/ci"}}
}

func benchBody(size int) []byte {
	tail := `"],"repository":{"full_name":"o/r"}}`
	return []byte(`{"commits":["` + strings.Repeat("x", size-13-len(tail)) + tail)
}

func BenchmarkHead(b *testing.B) {
	now := time.Now()
	for _, profile := range []string{"github", "gitea"} {
		b.Run(profile, func(b *testing.B) {
			v, r := benchVerifier(b, profile), benchRequest(profile, benchBody(8<<10))
			b.ReportAllocs()
			for b.Loop() {
				if _, bad := v.CheckHead(r, now); bad != nil {
					b.Fatal(bad)
				}
			}
		})
	}
	b.Run("refused", func(b *testing.B) {
		v, r := benchVerifier(b, "github"), benchRequest("github", benchBody(8<<10))
		r.Header.Del("X-Hub-Signature-256")
		b.ReportAllocs()
		for b.Loop() {
			if _, bad := v.CheckHead(r, now); bad == nil {
				b.Fatal("accepted")
			}
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	for name, size := range map[string]int{"8KiB": 8 << 10, "25MiB": 25 << 20} {
		body := benchBody(size)
		for _, kind := range []string{"genuine", "forged"} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				v, r := benchVerifier(b, "github"), benchRequest("github", body)
				if kind == "forged" {
					r.Header.Set("X-Hub-Signature-256", "sha256="+strings.Repeat("0", 64))
				}
				h, bad := v.CheckHead(r, time.Now())
				if bad != nil {
					b.Fatal(bad)
				}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if _, bad := h.Verify(body); (bad == nil) != (kind == "genuine") {
						b.Fatal(bad)
					}
				}
			})
		}
	}
}
