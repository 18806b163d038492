package webhook

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"strings"
	"time"
)

// Verifier checks the deliveries of one hook: a profile with its active
// secrets. It is immutable and safe for concurrent use.
type Verifier struct {
	profile  *Profile
	keys     keyring // as the profile's Auth needs them, see compileKey
	maxBody  int64   // operator's cap, 0 = the profile's
	reserved map[string]struct{}
}

// New returns a verifier. maxBody lowers the profile's body caps; 0 keeps
// them and a larger value than a cap does not raise it above [MaxBodyForm]. A profile that verifies
// needs a secret in the form it uses; one that cannot verify takes none.
func New(p *Profile, s Secrets, maxBody int64) (*Verifier, error) {
	if p.NeedsSecret() != (s.Len() > 0) {
		if p.NeedsSecret() {
			return nil, fmt.Errorf("profile %s: a secret is required", p.Name)
		}
		return nil, fmt.Errorf("profile %s: takes no secret, only the receiver can check its credential", p.Name)
	}
	if maxBody < 0 || maxBody > MaxBodyForm {
		return nil, fmt.Errorf("body cap %d: want 0 to %d bytes", maxBody, int64(MaxBodyForm))
	}
	v := &Verifier{profile: p, maxBody: maxBody, reserved: p.reservedNames()}
	var keys [][]byte
	for i, raw := range s.values() {
		key, err := p.compileKey(raw)
		if err != nil {
			return nil, fmt.Errorf("profile %s: secret %d: %w", p.Name, i+1, err)
		}
		keys = append(keys, key)
	}
	v.keys = newKeyring(keys)
	return v, nil
}

// Profile returns the verifier's profile.
func (v *Verifier) Profile() *Profile { return v.profile }

// MaxBody returns the largest body the verifier accepts of any type, bytes.
func (v *Verifier) MaxBody() int64 { return max(v.limit(false), v.limit(true)) }

func (v *Verifier) limit(form bool) int64 {
	n := v.profile.MaxBody
	if form && v.profile.MaxBodyForm > 0 {
		n = v.profile.MaxBodyForm
	}
	if v.maxBody > 0 {
		n = min(n, v.maxBody)
	}
	return n
}

// reservedNames is every header whose alias is refused.
func (p *Profile) reservedNames() map[string]struct{} {
	names := map[string]struct{}{p.canonical.name: {}, p.nonce: {}, "Content-Type": {}, "Content-Encoding": {},
		"Content-Length": {}, "Transfer-Encoding": {}}
	for _, n := range signatureHeaders {
		names[n] = struct{}{}
	}
	for _, rules := range [][]rule{p.required, p.optional} {
		for _, r := range rules {
			names[r.name] = struct{}{}
		}
	}
	delete(names, "")
	return names
}

var errSecretForm = errors.New("not in the form this profile uses")

// compileKey turns a secret into what the check compares or keys with: a MAC
// key, a public key, or the SHA-256 of the whole header value.
func (p *Profile) compileKey(raw []byte) ([]byte, error) {
	switch p.Auth {
	case Standard:
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(string(raw), "whsec_"))
		if err != nil || len(key) == 0 {
			return nil, errSecretForm
		}
		return key, nil
	case Ed25519:
		key, err := base64.StdEncoding.DecodeString(string(raw))
		if err != nil || len(key) != ed25519.PublicKeySize {
			return nil, errSecretForm
		}
		return key, nil
	case Basic:
		if user, _, ok := strings.Cut(string(raw), ":"); !ok || user == "" {
			return nil, errSecretForm
		}
		sum := sha256.Sum256([]byte(basicPrefix + base64.StdEncoding.EncodeToString(raw)))
		return sum[:], nil
	case Token:
		if !visible.all(string(raw)) {
			return nil, errSecretForm
		}
		sum := sha256.Sum256([]byte(p.prefix + string(raw)))
		return sum[:], nil
	}
	return raw, nil
}

// credentialOK compares digests of both sides, so that neither length nor
// common prefix shows, with every active secret.
func (v *Verifier) credentialOK(value string) bool {
	sum := sha256.Sum256([]byte(value))
	match := 0
	for _, key := range v.keys.values() {
		match |= subtle.ConstantTimeCompare(sum[:], key)
	}
	return match == 1
}

// Verify checks the body: its size, the form's shape where the profile signs
// the payload field, then the MAC with every active secret. The body must be
// complete and is neither changed nor kept. Cost: one pass of the hash per
// secret, one more of SHA-1 only for a genuine delivery that carries it.
func (h *Head) Verify(body []byte) (Delivery, *Refusal) {
	switch {
	case len(body) == 0:
		return Delivery{}, refuse(NoBody)
	case int64(len(body)) > h.Limit():
		return Delivery{}, refuse(TooLarge)
	}
	if bad := h.verifyBody(body); bad != nil {
		return Delivery{}, bad
	}
	return h.delivery(body), nil
}

func (h *Head) verifyBody(body []byte) *Refusal {
	p := h.v.profile
	switch p.Auth {
	case HMAC:
		return h.verifyHMAC(body)
	case Standard:
		return h.verifyStandard(body)
	case Ed25519:
		sig, _ := base64.StdEncoding.DecodeString(h.header.Get(p.canonical.name))
		signed := append(append(make([]byte, 0, len(body)+128), body...), h.header.Get(p.nonce)...)
		ok := false
		for _, key := range h.v.keys.values() {
			ok = ed25519.Verify(key, signed, sig) || ok
		}
		if !ok {
			return refuse(BadMAC)
		}
	}
	return nil
}

func (h *Head) verifyHMAC(body []byte) *Refusal {
	p := h.v.profile
	decode := h.form && p.payload
	if decode && !payloadForm(body) {
		return refuse(BadForm)
	}
	var owner []byte
	for _, key := range h.v.keys.values() {
		sum := macOf(p.algorithm.new(), key, body, decode)
		if hmac.Equal(sum, h.digest[:len(sum)]) {
			owner = key
		}
	}
	if owner == nil {
		return refuse(BadMAC)
	}
	if h.hasSHA1 && !hmac.Equal(macOf(sha1.New, owner, body, decode), h.sha1[:]) {
		return refuse(BadCompanionMAC)
	}
	return nil
}

func (a Algorithm) new() func() hash.Hash {
	switch a {
	case SHA1:
		return sha1.New
	case SHA512:
		return sha512.New
	}
	return sha256.New
}

func macOf(alg func() hash.Hash, key, body []byte, decode bool) []byte {
	mac := hmac.New(alg, key)
	if decode {
		decodePayload(mac, body)
	} else {
		_, _ = mac.Write(body)
	}
	return mac.Sum(nil)
}

func (h *Head) verifyStandard(body []byte) *Refusal {
	match := false
	for _, key := range h.v.keys.values() {
		mac := hmac.New(sha256.New, key)
		_, _ = mac.Write([]byte(h.header.Get("Webhook-Id") + "." + h.header.Get("Webhook-Timestamp") + "."))
		_, _ = mac.Write(body)
		want := base64.StdEncoding.EncodeToString(mac.Sum(nil))
		for entry := range strings.SplitSeq(h.header.Get("Webhook-Signature"), " ") {
			if isV1(entry) && subtle.ConstantTimeCompare([]byte(entry[3:]), []byte(want)) == 1 {
				match = true
			}
		}
	}
	if !match {
		return refuse(BadMAC)
	}
	return nil
}

// Check runs both steps over a request whose body is already in memory.
func (v *Verifier) Check(r *http.Request, body []byte, now time.Time) (Delivery, *Refusal) {
	h, bad := v.CheckHead(r, now)
	if bad != nil {
		return Delivery{}, bad
	}
	return h.Verify(body)
}
