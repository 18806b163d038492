package harness

import (
	"net/http"
	"net/http/httputil"
	"net/url"
)

// NewForwarder returns a handler that passes requests on to a server at addr, bodies whole, and answers as they come.
func NewForwarder(addr string) http.Handler {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr})
	proxy.FlushInterval = -1
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := buffer(r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		proxy.ServeHTTP(w, r)
	})
}
