package identity

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Rest returns one digest of every credential of r other than its one
// Authorization line: what stays in the request when the gateway asks without
// that line. Zero when there is none. It covers
//
//   - Cookie, any cookie;
//   - header fields and query parameters whose name contains a word such as
//     token, auth, user, cert, secret or session (the list is words below):
//     PRIVATE-TOKEN, JOB-TOKEN, X-WEBAUTH-USER, X-Forwarded-User, private_token
//     and the like. User-Agent and Sec-… are exempt. A name that cannot be
//     decoded, or is longer than 256 bytes, counts as one;
//   - a client certificate, verified or not, and user information in the URL;
//   - Authorization itself where [Store.Parse] finds no scheme it knows or
//     several lines, so that such a request never passes for a bare one.
//
// Too much in it costs a question; too little would let a hidden genuine
// credential prove a made-up one. A login proxy's header that contains none of
// the words must not be accepted from clients (it must not anyway).
//
// Safe for concurrent use. Cost: linear in the header names and in the
// credentials found; no allocation when there are none.
func (s *Store) Rest(r *http.Request) Digest {
	var space [8]string
	names := space[:0]
	for name := range r.Header {
		if restHeader(name, r.Header) {
			names = append(names, name)
		}
	}
	query, user, certificate := restURL(r.URL), restUser(r.URL), restCertificate(r)
	if len(names) == 0 && !query && user == nil && certificate == nil {
		return Digest{}
	}
	slices.Sort(names)
	x := s.hashers.get(kindRest)
	defer s.hashers.put(x)
	x.frame(len(names))
	for _, name := range names {
		x.add(name)
		x.frame(len(r.Header[name]))
		for _, value := range r.Header[name] {
			x.add(value)
		}
	}
	if query {
		// All of it: which of two spellings counts is the upstream's choice.
		x.frame(restQuery)
		x.add(r.URL.RawQuery)
	}
	if user != nil {
		x.frame(restUserinfo)
		x.add(user.String())
	}
	if certificate != nil {
		x.frame(restClientCert)
		x.addBytes(certificate)
	}
	return x.digest()
}

// What follows the header fields in the digest.
const (
	restQuery = iota
	restUserinfo
	restClientCert
)

// words mark a header field or query parameter as a credential, in lower case.
var words = [...]string{
	"token", "auth", "cookie", "user", "cert", "secret", "passw", "session",
	"login", "key", "jwt", "oidc", "saml", "assertion", "credential", "sso",
	"email", "identity", "principal", "subject", "account", "ticket", "access",
	"signature", "-dn", "group", "role",
}

// restHeader tells whether a field belongs to the rest. The first case names
// the fields that git and proxies send all the time, to save the search.
func restHeader(name string, h http.Header) bool {
	switch name {
	case "Accept", "Accept-Encoding", "Accept-Language", "Content-Encoding",
		"Content-Length", "Content-Type", "Expect", "Git-Protocol", "Pragma",
		"User-Agent", "Via", "X-Forwarded-For", "X-Forwarded-Host",
		"X-Forwarded-Proto", "X-Real-Ip":
		return false
	case "Cookie":
		return true
	case "Authorization":
		return foreign(h[name])
	}
	if len(name) > 4 && equalFold(name[:4], "sec-") || equalFold(name, "user-agent") {
		return false
	}
	return hasWord(name)
}

// foreign reports whether Authorization lines are not one line of a scheme
// that Parse knows.
func foreign(lines []string) bool {
	if len(lines) != 1 {
		return len(lines) > 1
	}
	form, _ := splitScheme(lines[0])
	return form == Unusable
}

func restURL(u *url.URL) bool {
	if u == nil || u.RawQuery == "" {
		return false
	}
	for pair := range parameters(u.RawQuery) {
		if restParameter(pair) {
			return true
		}
	}
	return false
}

// parameters yields the pairs of a raw query. Upstreams disagree on whether
// ";" separates: here it does.
func parameters(raw string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for raw != "" {
			end := strings.IndexAny(raw, "&;")
			if end < 0 {
				yield(raw)
				return
			}
			if end > 0 && !yield(raw[:end]) {
				return
			}
			raw = raw[end+1:]
		}
	}
}

func restParameter(pair string) bool {
	name, _, _ := strings.Cut(pair, "=")
	if strings.ContainsAny(name, "%+") {
		decoded, err := url.QueryUnescape(name)
		if err != nil {
			return true
		}
		name = decoded
	}
	return hasWord(name)
}

func restUser(u *url.URL) *url.Userinfo {
	if u == nil {
		return nil
	}
	return u.User
}

func restCertificate(r *http.Request) []byte {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil
	}
	return r.TLS.PeerCertificates[0].Raw
}

// maxName is the longest name that is searched; a longer one is a credential.
const maxName = 256

// byFirst holds words by their first letter, so that a search costs little
// more than reading the name.
var byFirst = func() (index [256][]string) {
	for _, word := range words {
		index[word[0]] = append(index[word[0]], word)
	}
	return index
}()

// hasWord looks for one of words, ignoring ASCII case. "_" is read as "-":
// CGI and WSGI upstreams cannot tell them apart.
func hasWord(name string) bool {
	if len(name) > maxName {
		return true
	}
	for i := range len(name) {
		for _, word := range byFirst[nameByte(name[i])] {
			if hasPrefixFold(name[i:], word) {
				return true
			}
		}
	}
	return false
}

func hasPrefixFold(s, lower string) bool {
	if len(s) < len(lower) {
		return false
	}
	for i := range len(lower) {
		if nameByte(s[i]) != lower[i] {
			return false
		}
	}
	return true
}

func nameByte(b byte) byte {
	if b == '_' {
		return '-'
	}
	return lowerByte(b)
}
