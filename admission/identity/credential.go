package identity

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strings"
)

// Form says how a credential was presented.
type Form uint8

const (
	// None: there is no Authorization line.
	None Form = iota
	// Unusable: there is one, but it can prove nothing: another scheme
	// (Negotiate, Digest, NTLM, unknown), several lines, a spelling that is
	// not canonical, no secret in it, or more than 8 KiB.
	Unusable
	// Basic, Bearer and Token are the schemes of that name.
	Basic
	Bearer
	Token
	// Session is a session cookie, see [Store.Session]. No Authorization line
	// has this form.
	Session
)

// String returns the form's name; it is safe as a label.
func (f Form) String() string {
	switch f {
	case None:
		return "none"
	case Basic:
		return "basic"
	case Bearer:
		return "bearer"
	case Token:
		return "token"
	case Session:
		return "session"
	}
	return "unusable"
}

// maxAuthorization bounds the Authorization value that is looked at, in bytes.
const maxAuthorization = 8 << 10

// Credential is what is known of an Authorization line. It holds no secret.
// The zero value is no credential.
type Credential struct {
	Form Form
	// Secret identifies the secret, whatever it was dressed in: Basic with any
	// user name, Bearer and token with the same secret have the same digest.
	// Zero unless the form is Basic, Bearer, Token or Session.
	Secret Digest
	// User identifies the user name of a Basic credential whose secret is the
	// password, and is zero otherwise. It is what the client says: upstreams
	// ignore it next to a token, so a limit by User alone can be walked around;
	// see [Store.User].
	User Digest
}

// Usable reports whether the credential may be proven.
func (c Credential) Usable() bool {
	return c.Form >= Basic && c.Form <= Session && !c.Secret.Zero()
}

var strict = base64.StdEncoding.Strict()

// Parse reads the credential of a request. It accepts one spelling of each
// credential and calls every other one Unusable, because upstreams are lax in
// different ways and each accepted variant would be one more identity for the
// same secret:
//
//   - exactly one Authorization line of at most 8 KiB: the scheme in any case,
//     one space, the credential, nothing after it;
//   - Basic: padded standard base64 that encodes again to the same text, with
//     a colon and without control characters. The secret is the password, or
//     the user name when the password is empty or "x-oauth-basic";
//   - Bearer and token: the characters of RFC 6750, "=" only as the padding of
//     a text that is base64 as a whole;
//   - a JSON web token, in either, ends in a canonically encoded signature
//     (decoders ignore the unused bits of its last character).
//
// Safe for concurrent use. Cost: about a microsecond, no allocation.
func (s *Store) Parse(h http.Header) Credential {
	lines := h["Authorization"]
	if len(lines) == 0 {
		return Credential{}
	}
	if len(lines) > 1 || len(lines[0]) > maxAuthorization {
		return Credential{Form: Unusable}
	}
	form, text := splitScheme(lines[0])
	switch form {
	case Basic:
		return s.parseBasic(text)
	case Bearer, Token:
		return s.parseToken(form, text)
	}
	return Credential{Form: Unusable}
}

// splitScheme cuts an Authorization value at its first space.
func splitScheme(line string) (Form, string) {
	scheme, text, ok := strings.Cut(line, " ")
	switch {
	case !ok:
		return Unusable, ""
	case equalFold(scheme, "basic"):
		return Basic, text
	case equalFold(scheme, "bearer"):
		return Bearer, text
	case equalFold(scheme, "token"):
		return Token, text
	}
	return Unusable, ""
}

func (s *Store) parseBasic(text string) Credential {
	x := s.hashers.get(kindSecret)
	defer s.hashers.put(x)
	user, password, ok := x.decodeBasic(text)
	if !ok {
		return Credential{Form: Unusable}
	}
	secret, named := password, true
	if len(password) == 0 || string(password) == "x-oauth-basic" {
		secret, named = user, false
	}
	if len(secret) == 0 || !canonicalJWT(secret) {
		return Credential{Form: Unusable}
	}
	c := Credential{Form: Basic}
	x.addBytes(secret)
	c.Secret = x.digest()
	if named && len(user) > 0 {
		x.begin(kindUser)
		x.addBytes(user)
		c.User = x.digest()
	}
	return c
}

// decodeBasic decodes the canonical form only. The results lie in x.text.
func (x *hasher) decodeBasic(text string) (user, password []byte, ok bool) {
	encoded := x.text[:copy(x.text[:maxAuthorization], text)]
	x.used = len(encoded)
	if len(encoded) == 0 || len(encoded)%4 != 0 {
		return nil, nil, false
	}
	x.used = maxAuthorization + len(encoded)
	plain := x.text[maxAuthorization:]
	n, err := strict.Decode(plain, encoded)
	if err != nil {
		return nil, nil, false
	}
	plain = plain[:n]
	again := encoded[:strict.EncodedLen(n)]
	strict.Encode(again, plain)
	if string(again) != text || bytes.ContainsFunc(plain, isControl) {
		return nil, nil, false
	}
	return bytes.Cut(plain, []byte{':'})
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

func (s *Store) parseToken(form Form, text string) Credential {
	x := s.hashers.get(kindSecret)
	defer s.hashers.put(x)
	x.used = copy(x.text[:maxAuthorization], text)
	secret := x.text[:x.used]
	if !x.canonicalToken(secret) || !canonicalJWT(secret) {
		return Credential{Form: Unusable}
	}
	x.addBytes(secret)
	return Credential{Form: form, Secret: x.digest()}
}

// canonicalToken accepts the b64token of RFC 6750. Padding is accepted only
// where removing or adding one more "=" would not be: every text has at most
// one padded relative.
func (x *hasher) canonicalToken(token []byte) bool {
	bare := bytes.TrimRight(token, "=")
	if len(bare) == 0 {
		return false
	}
	for _, b := range bare {
		if !isTokenByte(b) {
			return false
		}
	}
	if len(bare) == len(token) {
		return true
	}
	if len(token)%4 != 0 {
		return false
	}
	encoding := strict
	if bytes.ContainsAny(bare, "-_") {
		encoding = strictURL
	}
	x.used = maxAuthorization + len(token)
	_, err := encoding.Decode(x.text[maxAuthorization:], token)
	return err == nil
}

var strictURL = base64.URLEncoding.Strict()

func isTokenByte(b byte) bool {
	switch {
	case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9':
		return true
	}
	return b == '-' || b == '.' || b == '_' || b == '~' || b == '+' || b == '/'
}

// canonicalJWT is false for a JSON web token whose signature is not in
// canonical base64url. Anything else is true.
func canonicalJWT(secret []byte) bool {
	if !bytes.HasPrefix(secret, []byte("eyJ")) || bytes.Count(secret, []byte{'.'}) != 2 {
		return true
	}
	signature := secret[bytes.LastIndexByte(secret, '.')+1:]
	for _, b := range signature {
		if base64URLValue(b) < 0 {
			return false
		}
	}
	if len(signature) == 0 {
		return true
	}
	last := base64URLValue(signature[len(signature)-1])
	switch len(signature) % 4 {
	case 1:
		return false
	case 2:
		return last&0x0f == 0
	case 3:
		return last&0x03 == 0
	}
	return true
}

func base64URLValue(b byte) int {
	switch {
	case 'A' <= b && b <= 'Z':
		return int(b - 'A')
	case 'a' <= b && b <= 'z':
		return int(b-'a') + 26
	case '0' <= b && b <= '9':
		return int(b-'0') + 52
	case b == '-':
		return 62
	case b == '_':
		return 63
	}
	return -1
}

// equalFold compares with lower, ignoring the case of ASCII letters only.
func equalFold(s, lower string) bool {
	if len(s) != len(lower) {
		return false
	}
	for i := range len(s) {
		if lowerByte(s[i]) != lower[i] {
			return false
		}
	}
	return true
}

func lowerByte(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		b += 'a' - 'A'
	}
	return b
}
