package webhook

import (
	"encoding/hex"
	"fmt"
	"net/textproto"
	"slices"
)

// GenericToken as the algorithm of [Generic] means that the header is the
// secret itself.
const GenericToken Algorithm = "token"

// digestLen returns the bytes of a digest, 0 for an unknown algorithm.
func (a Algorithm) digestLen() int {
	switch a {
	case SHA1:
		return 20
	case SHA256:
		return 32
	case SHA512:
		return 64
	}
	return 0
}

// Generic returns the profile of a sender that puts prefix and the lower-case
// hexadecimal HMAC of the raw body into one header, or, with [GenericToken],
// prefix and the secret. The header must be a field name without "_" and ".",
// and none that describes the message itself.
func Generic(header, prefix string, algorithm Algorithm) (*Profile, error) {
	name := textproto.CanonicalMIMEHeaderKey(header)
	if !fieldName(header) || slices.Contains(messageHeaders, name) {
		return nil, fmt.Errorf("signature header %q cannot be used", header)
	}
	if len(prefix) > 64 || !prefixSet.all(prefix) {
		return nil, fmt.Errorf("signature prefix %q: at most 64 visible characters and spaces", prefix)
	}
	p := &Profile{
		Name: "generic", Label: "configured by hand", Auth: HMAC,
		MaxBody: MaxBody, MaxBodyForm: MaxBodyForm, Deadline: longDeadline,
		Retries: "unknown", Recover: "operator",
		algorithm: algorithm, prefix: prefix, repository: append(append([]path{}, fullName...), gitlabPath...),
	}
	switch n := algorithm.digestLen(); {
	case algorithm == GenericToken:
		p.Auth = Token
		p.canonical = rule{name, func(v string) bool {
			return len(v) > len(prefix) && v[:len(prefix)] == prefix && visible.all(v[len(prefix):])
		}}
	case n > 0:
		p.canonical = rule{name, hexDigest(prefix, hex.EncodedLen(n))}
	default:
		return nil, fmt.Errorf("unknown signature algorithm %q: want sha1, sha256, sha512 or token", algorithm)
	}
	return p, nil
}

var prefixSet = setOf(" ~", "")

// messageHeaders describe the message; none of them can carry a signature.
var messageHeaders = []string{
	"Host", "Content-Length", "Content-Type", "Content-Encoding", "Transfer-Encoding",
	"Connection", "Expect", "Upgrade", "Te", "Trailer", "Keep-Alive", "Proxy-Connection",
}

var fieldSet = setOf("azAZ09", "-")

func fieldName(s string) bool { return s != "" && len(s) <= 128 && fieldSet.all(s) }
