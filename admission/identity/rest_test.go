package identity

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func request(target string, fields ...string) *http.Request {
	r := httptest.NewRequest("GET", target, nil)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	return r
}

const discovery = "/team/app.git/info/refs?service=git-upload-pack"

func TestRestNothing(t *testing.T) {
	s := NewStore()
	for name, r := range map[string]*http.Request{
		"git": request(discovery, "User-Agent", "git/2.55", "Accept", "*/*", "Accept-Encoding", "deflate, gzip, br, zstd",
			"Pragma", "no-cache", "Git-Protocol", "version=2", "Accept-Language", "de"),
		"the one Authorization":  request(discovery, "Authorization", basic("u", "pw")),
		"a spelling of it":       request(discovery, "Authorization", "Basic dTpw, x"),
		"behind another proxy":   request(discovery, "X-Forwarded-For", "192.0.2.1", "X-Forwarded-Proto", "https", "Via", "1.1 a", "X-Request-Id", "7", "Cf-Ray", "1", "Forwarded", "for=192.0.2.1", "Traceparent", "00-1"),
		"a browser":              request(discovery, "Sec-Fetch-User", "?1", "Upgrade-Insecure-Requests", "1", "Accept-Language", "de", "Sec-Websocket-Key", "x"),
		"lfs":                    request("/team/app.git/info/lfs/objects/batch", "Content-Type", "application/vnd.git-lfs+json", "Content-Length", "10"),
		"other query parameters": request("/team/app.git/info/lfs/locks?path=a&refspec=refs%2Fheads%2Fmain&limit=3&cursor=7"),
		"no TLS certificate":     {Header: http.Header{}, TLS: new(tls.ConnectionState)},
		"no URL":                 {},
	} {
		if !s.Rest(r).Zero() {
			t.Errorf("%s: something is a credential", name)
		}
	}
}

func TestRestEverything(t *testing.T) {
	s := NewStore()
	seen := map[Digest]string{}
	withCertificate := request(discovery)
	withCertificate.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Raw: []byte("one")}}}
	otherCertificate := request(discovery)
	otherCertificate.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Raw: []byte("two")}}}
	withUser := request(discovery)
	withUser.URL.User = url.UserPassword("u", "pw")
	for name, r := range map[string]*http.Request{
		"cookie":                  request(discovery, "Cookie", "session=1"),
		"another cookie":          request(discovery, "Cookie", "session=2"),
		"two cookie lines":        request(discovery, "Cookie", "session=1", "Cookie", "session=2"),
		"empty cookie":            request(discovery, "Cookie", ""),
		"token":                   request(discovery + "&token=1"),
		"another token":           request(discovery + "&token=2"),
		"access_token":            request(discovery + "&access_token=1"),
		"private_token":           request(discovery + "&private_token=1"),
		"job_token":               request(discovery + "&job_token=1"),
		"array":                   request(discovery + "&private_token[]=1"),
		"upper case":              request(discovery + "&TOKEN=1"),
		"encoded name":            request(discovery + "&%74oken=1"),
		"after a semicolon":       request(discovery + ";token=1"),
		"name that is no name":    request(discovery + "&%zz=1"),
		"endless name":            request(discovery, strings.Repeat("X", maxName+1), "1"),
		"token first":             request("/team/app.git/info/refs?token=1&service=git-upload-pack&token=2"),
		"PRIVATE-TOKEN":           request(discovery, "PRIVATE-TOKEN", "1"),
		"JOB-TOKEN":               request(discovery, "JOB-TOKEN", "1"),
		"DEPLOY-TOKEN":            request(discovery, "DEPLOY-TOKEN", "1"),
		"X-WEBAUTH-USER":          request(discovery, "X-WEBAUTH-USER", "admin"),
		"with underscores":        request(discovery, "X_WEBAUTH_USER", "admin"),
		"X-WEBAUTH-EMAIL":         request(discovery, "X-WEBAUTH-EMAIL", "admin"),
		"X-WEBAUTH-FULLNAME":      request(discovery, "X-WEBAUTH-FULLNAME", "admin"),
		"X-Forwarded-User":        request(discovery, "X-Forwarded-User", "admin"),
		"Remote-User":             request(discovery, "Remote-User", "admin"),
		"X-Auth-Request-Groups":   request(discovery, "X-Auth-Request-Groups", "admin"),
		"X-Forwarded-Groups":      request(discovery, "X-Forwarded-Groups", "admin"),
		"X-Forwarded-Email":       request(discovery, "X-Forwarded-Email", "admin"),
		"X-Ssl-Client-S-Dn":       request(discovery, "X-Ssl-Client-S-Dn", "admin"),
		"X-Forwarded-Client-Cert": request(discovery, "X-Forwarded-Client-Cert", "admin"),
		"Cf-Access-Jwt-Assertion": request(discovery, "Cf-Access-Jwt-Assertion", "admin"),
		"X-Api-Key":               request(discovery, "X-Api-Key", "admin"),
		"Proxy-Authorization":     request(discovery, "Proxy-Authorization", basic("u", "pw")),
		"negotiate":               request(discovery, "Authorization", "Negotiate abc"),
		"two Authorization lines": request(discovery, "Authorization", basic("u", "pw"), "Authorization", basic("u", "pw")),
		"client certificate":      withCertificate,
		"another certificate":     otherCertificate,
		"user in the URL":         withUser,
	} {
		d := s.Rest(r)
		if d.Zero() {
			t.Errorf("%s is no credential", name)
		}
		if other, ok := seen[d]; ok {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[d] = name
	}
}

// The digest depends on the credentials alone, and not on map order.
func TestRestStable(t *testing.T) {
	s := NewStore()
	fields := []string{"Cookie", "a=1", "Private-Token", "x", "X-Webauth-User", "u", "X-Forwarded-User", "v", "Job-Token", "w"}
	want := s.Rest(request(discovery+"&token=1", fields...))
	for range 100 {
		r := request("/other.git/info/refs?service=git-upload-pack&token=1", fields...)
		r.Header.Set("Authorization", basic("u", "pw"))
		r.Header.Set("User-Agent", "git/2.39.5")
		if s.Rest(r) != want {
			t.Fatal("the digest changed")
		}
	}
}
