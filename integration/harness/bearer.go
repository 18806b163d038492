package harness

import (
	"bytes"
	"io"
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
		if err := buffer(r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	tb.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// buffer reads the body of r before it is passed on. Git's servers answer before they have read the end of a body, and the
// standard library's proxy then breaks the answer off when it finds the body closed.
func buffer(r *http.Request) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
	if err != nil {
		return err
	}
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	return nil
}
