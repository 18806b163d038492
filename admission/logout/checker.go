package logout

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Bounds and leeways of a logout request.
const (
	MaxBody   = 16 << 10 // bytes of the form
	MaxToken  = 8192     // characters of the token
	iatLeeway = 300 * time.Second
	expLeeway = 60 * time.Second
)

// Issuer is one provider whose logout tokens are accepted.
type Issuer struct {
	// URL is compared with the iss claim as it stands.
	URL string
	// Clients are the accepted audiences; empty accepts every audience.
	Clients []string
	// Keys verifies signatures; nil checks shape and claims only.
	Keys *Keys
}

// Config is what the operator may say about logout. The zero value accepts
// every issuer and verifies no signature.
type Config struct {
	// Algorithms is the list of accepted signature algorithms; empty means
	// all asymmetric ones: RS, PS and ES with 256, 384, 512, and EdDSA.
	Algorithms []string
	// Issuers, when not empty, are the only accepted ones.
	Issuers []Issuer
}

// Checker checks logout requests. It is immutable apart from its issuers' key
// caches and safe for concurrent use.
type Checker struct {
	algorithms []string
	issuers    []Issuer
}

// New returns a Checker; all mistakes of the configuration are reported at once.
func New(c Config) (*Checker, error) {
	k := &Checker{algorithms: c.Algorithms, issuers: c.Issuers}
	var mistakes []error
	if len(k.algorithms) == 0 {
		k.algorithms = DefaultAlgorithms()
	}
	for _, a := range k.algorithms {
		if _, ok := signatureBytes[a]; !ok {
			mistakes = append(mistakes, fmt.Errorf("logout algorithm %q: want one of %s", a, strings.Join(DefaultAlgorithms(), ", ")))
		}
	}
	for i, is := range k.issuers {
		if is.URL == "" {
			mistakes = append(mistakes, fmt.Errorf("logout issuer %d: empty URL", i+1))
		}
	}
	return k, errors.Join(mistakes...)
}

// Verifies reports whether every accepted token is checked against keys.
func (k *Checker) Verifies() bool {
	return len(k.issuers) > 0 && !slices.ContainsFunc(k.issuers, func(i Issuer) bool { return i.Keys == nil })
}

// CheckHead runs the checks that need no body: method, declared length,
// content type and encoding, query. It never reads r.Body.
func (k *Checker) CheckHead(r *http.Request) *Refusal {
	switch {
	case r.Method != http.MethodPost:
		return refuse(BadMethod)
	case r.ContentLength > MaxBody:
		return refuse(TooLarge)
	case r.ContentLength == 0:
		return refuse(NoBody)
	case !formContent(r.Header["Content-Type"]):
		return refuse(BadContentType)
	}
	switch enc := r.Header["Content-Encoding"]; {
	case len(enc) == 0:
	case len(enc) > 1 || !strings.EqualFold(enc[0], "identity"):
		return refuse(BadEncoding)
	}
	if r.URL.RawQuery != "" {
		if q, err := url.ParseQuery(r.URL.RawQuery); err != nil || q.Has(field) {
			return refuse(BadQuery)
		}
	}
	return nil
}

func formContent(values []string) bool {
	if len(values) != 1 || len(values[0]) > 256 {
		return false
	}
	media, params, more := strings.Cut(values[0], ";")
	if !strings.EqualFold(strings.TrimSpace(media), "application/x-www-form-urlencoded") {
		return false
	}
	if !more {
		return true
	}
	name, value, ok := strings.Cut(strings.TrimSpace(params), "=")
	return ok && strings.EqualFold(name, "charset") && strings.EqualFold(strings.Trim(value, `"`), "utf-8")
}

const field = "logout_token"

// CheckBody checks the form and the shape of its token: header, algorithm,
// claims, issuer, audience and times. No key is looked up. Cost: some tens of
// microseconds; memory in proportion to the body, at most [MaxBody].
func (k *Checker) CheckBody(body []byte, now time.Time) (*Token, *Refusal) {
	switch {
	case len(body) == 0:
		return nil, refuse(NoBody)
	case len(body) > MaxBody:
		return nil, refuse(TooLarge)
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || len(form[field]) != 1 || form[field][0] == "" {
		return nil, refuse(BadForm)
	}
	t, bad := parseToken(form[field][0], k.algorithms)
	if bad != nil {
		return nil, bad
	}
	if bad := t.claims.check(now); bad != nil {
		return nil, bad
	}
	if len(k.issuers) == 0 {
		return t, nil
	}
	for i := range k.issuers {
		if is := &k.issuers[i]; is.URL == t.claims.issuer {
			if len(is.Clients) > 0 && !slices.ContainsFunc(t.claims.audience, func(a string) bool { return slices.Contains(is.Clients, a) }) {
				return nil, refuse(BadIssuer)
			}
			t.keys = is.Keys
			return t, nil
		}
	}
	return nil, refuse(BadIssuer)
}
