package gate

import (
	"net/http"
	"strings"
)

// identityHeaders are fields with which login proxies tell a server who the
// user is, and identityPrefixes how whole families of them begin; in lower case
// with "-" for "_", because CGI servers cannot tell the two apart. A forge that
// is set up to believe one of them would believe it from anybody.
var (
	identityHeaders = map[string]bool{
		"remote-user": true, "remote-name": true, "remote-email": true, "remote-groups": true,
		"x-remote-user": true, "x-remote-email": true, "x-remote-groups": true,
		"x-forwarded-user": true, "x-forwarded-email": true, "x-forwarded-groups": true,
		"x-forwarded-preferred-username": true, "x-forwarded-access-token": true,
		"x-authenticated-user": true, "x-auth-user": true, "x-auth-username": true, "x-user": true, "x-email": true,
		"x-ssl-client-dn": true, "ssl-client-s-dn": true, "x-client-dn": true,
	}
	identityPrefixes = []string{"x-webauth-", "x-auth-request-", "x-authentik-", "x-vouch-", "x-token-user-", "x-goog-authenticated-user-"}
)

// strip takes the identity headers away that the client sent. Handlers behind
// this one may set them again.
func (g *Gate) strip(h http.Header) {
	if g.preset == nil && len(g.stripped) == 0 {
		return
	}
	for name := range h {
		if g.isStripped(name) {
			delete(h, name)
		}
	}
}

func (g *Gate) isStripped(name string) bool {
	switch name {
	case "Accept", "Accept-Encoding", "Accept-Language", "Cookie", "Content-Length", "Content-Type", "Git-Protocol",
		"Pragma", "Referer", "User-Agent":
		return false
	}
	lower := foldHeader(name)
	if g.stripped[lower] {
		return true
	}
	if g.preset == nil || g.opts.People.KeepHeaders {
		return false
	}
	if identityHeaders[lower] {
		return true
	}
	for _, prefix := range identityPrefixes {
		if strings.HasPrefix(lower, prefix) {
			return true
		}
	}
	return false
}

func foldHeader(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "_", "-")
}

// strippedNames prepares the operator's own list.
func strippedNames(names []string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[foldHeader(n)] = true
	}
	return m
}
