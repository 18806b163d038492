package logout

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// signatureBytes is the size of a signature by algorithm; RSA has a range.
var signatureBytes = map[string][2]int{
	"RS256": {256, 1024}, "RS384": {256, 1024}, "RS512": {256, 1024},
	"PS256": {256, 1024}, "PS384": {256, 1024}, "PS512": {256, 1024},
	"ES256": {64, 64}, "ES384": {96, 96}, "ES512": {132, 132}, "EdDSA": {64, 64},
}

// DefaultAlgorithms returns every accepted algorithm, sorted.
func DefaultAlgorithms() []string {
	names := make([]string, 0, len(signatureBytes))
	for n := range signatureBytes {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Token is a logout token of correct shape. Its signature is not checked until
// [Token.Verify].
type Token struct {
	compact   string
	algorithm string
	kid       string
	claims    claims
	keys      *Keys
}

// Verifiable reports whether the token's issuer has keys to check it with.
func (t *Token) Verifiable() bool { return t.keys != nil }

// Expires is when the token is worthless: exp, or two minutes after iat.
func (t *Token) Expires() time.Time {
	if t.claims.hasExp {
		return t.claims.expires
	}
	return t.claims.issued.Add(2 * time.Minute)
}

// Format keeps a token out of every formatted text.
func (t *Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[logout token]") }

// parseToken checks the compact serialisation and the JOSE header and reads
// the claims.
func parseToken(compact string, algorithms []string) (*Token, *Refusal) {
	if len(compact) > MaxToken {
		return nil, refuse(BadToken)
	}
	segments := strings.Split(compact, ".")
	if len(segments) != 3 {
		return nil, refuse(BadToken)
	}
	var raw [3][]byte
	for i, s := range segments {
		b, ok := decodeSegment(s)
		if !ok {
			return nil, refuse(BadToken)
		}
		raw[i] = b
	}
	t := &Token{compact: compact}
	if bad := t.readHeader(raw[0], algorithms); bad != nil {
		return nil, bad
	}
	if size := signatureBytes[t.algorithm]; len(raw[2]) < size[0] || len(raw[2]) > size[1] {
		return nil, refuse(BadAlgorithm)
	}
	if !t.claims.read(raw[1]) {
		return nil, refuse(BadClaims)
	}
	return t, nil
}

// decodeSegment is strict base64url: no padding, no white space, no unused
// bits, not empty.
func decodeSegment(s string) ([]byte, bool) {
	if s == "" || strings.ContainsAny(s, "\r\n") {
		return nil, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	return b, err == nil
}

// forbiddenHeader are members with which a sender would choose the key or
// change how the token is read.
var forbiddenHeader = []string{"jku", "jwk", "x5u", "x5c", "crit", "b64"}

func (t *Token) readHeader(raw []byte, algorithms []string) *Refusal {
	m, ok := members(raw)
	if !ok {
		return refuse(BadHeader)
	}
	for _, name := range forbiddenHeader {
		if _, present := m[name]; present {
			return refuse(BadHeader)
		}
	}
	if t.algorithm, ok = text(m["alg"]); !ok || !slices.Contains(algorithms, t.algorithm) {
		return refuse(BadAlgorithm)
	}
	if raw, present := m["kid"]; present {
		if t.kid, ok = text(raw); !ok || len(t.kid) > 255 {
			return refuse(BadHeader)
		}
	}
	if raw, present := m["typ"]; present {
		typ, ok := text(raw)
		typ = strings.TrimPrefix(strings.ToLower(typ), "application/")
		if !ok || (typ != "jwt" && typ != "logout+jwt") {
			return refuse(BadHeader)
		}
	}
	return nil
}

// members reads a JSON object without repeated members and with nothing after it.
func members(raw []byte) (map[string]json.RawMessage, bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	m := make(map[string]json.RawMessage)
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, false
		}
		if _, again := m[name]; again {
			return nil, false
		}
		var v json.RawMessage
		if d.Decode(&v) != nil {
			return nil, false
		}
		m[name] = v
	}
	if _, err := d.Token(); err != nil {
		return nil, false
	}
	_, err := d.Token()
	return m, err == io.EOF
}

// text reads a non-empty JSON string.
func text(raw json.RawMessage) (string, bool) {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, s != ""
}
