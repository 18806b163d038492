package gate

import "net/http"

// Placeholder until the ingress lands (its author replaces this file).

type IngressConfig struct{}
type ingress struct{}
type route struct{}

func newIngress(*IngressConfig, *State) (*ingress, error) { return &ingress{}, nil }
func (*ingress) match(*http.Request) (*route, bool)       { return nil, false }
func (g *Gate) serveIngress(w http.ResponseWriter, r *http.Request, next Next, _ *route) error {
	return next(w, r)
}
