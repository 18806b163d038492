package harness

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
)

// StartBearer starts a server that takes one Bearer token as alice's credential and passes everything on to target; it
// returns its address. A request without a credential passes as it is, its 401 asks for Bearer; any other credential gets 401.
func StartBearer(tb testing.TB, target, token string) string {
	tb.Helper()
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: target})
			r.Out.Host = r.In.Host
			if r.In.Header.Get("Authorization") != "" {
				r.Out.SetBasicAuth(Alice, AliceSecret)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			if r.StatusCode == http.StatusUnauthorized {
				r.Header.Set("WWW-Authenticate", `Bearer realm="git"`)
			}
			return nil
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "" && got != "Bearer "+token {
			w.Header().Set("WWW-Authenticate", `Bearer realm="git"`)
			http.Error(w, "unknown token", http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	tb.Cleanup(server.Close)
	return server.Listener.Addr().String()
}
