package cases

import (
	"net"
	"net/http"
)

// portal is a login page that some site puts before its forge: without a
// cookie it sends everybody to the login.
type portal struct {
	addr   string
	server *http.Server
}

func newPortal() *portal {
	p := &portal{addr: freeAddress()}
	p.server = &http.Server{ErrorLog: quiet, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Cookie") == "" {
			http.Redirect(w, r, "/login", http.StatusFound)
		}
	})}
	if l, err := net.Listen("tcp", p.addr); err == nil {
		go p.server.Serve(l)
	}
	return p
}

func (p *portal) close() { p.server.Close() }
