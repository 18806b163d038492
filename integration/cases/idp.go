package cases

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"sync"
	"time"
)

// idp is an identity provider's signing side: one key its JWKS publishes and
// one that it does not.
type idp struct {
	good, bad *rsa.PrivateKey
}

// issuer is what the tokens name; audience the relying party.
const (
	issuer   = "https://idp.example"
	audience = "forge"
	keyID    = "idp-1"
)

// testIDP makes the keys once for the process; making one takes 0.1 s or more.
var testIDP = sync.OnceValue(func() *idp {
	p := &idp{}
	for _, key := range []**rsa.PrivateKey{&p.good, &p.bad} {
		k, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err) // no randomness: nothing can run
		}
		*key = k
	}
	return p
})

// logoutToken signs a back-channel logout token. kind is "idp" or "badkey";
// the latter names the published key but is signed by another.
func (p *idp) logoutToken(kind string) (string, error) {
	key := p.good
	switch kind {
	case "idp":
	case "badkey":
		key = p.bad
	default:
		return "", fmt.Errorf("unknown token {{jwt:%s}}", kind)
	}
	head := map[string]any{"alg": "RS256", "typ": "logout+jwt", "kid": keyID}
	now := time.Now()
	claims := map[string]any{
		"iss": issuer, "aud": audience, "sub": "user-" + rand.Text()[:8], "sid": rand.Text(), "jti": rand.Text(),
		"iat": now.Unix(), "exp": now.Add(2 * time.Minute).Unix(),
		"events": map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}},
	}
	signed := segment(head) + "." + segment(claims)
	sum := sha256.Sum256([]byte(signed))
	sig, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", err
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(sig), nil
}

// jwks is the published key set.
func (p *idp) jwks() []byte {
	pub := p.good.PublicKey
	raw, _ := json.Marshal(map[string]any{"keys": []any{map[string]any{ // plain data: cannot fail
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": keyID,
		"n": base64.RawURLEncoding.EncodeToString(pub.N.Bytes()),
		"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(pub.E)).Bytes()),
	}}})
	return raw
}

func segment(v any) string {
	raw, _ := json.Marshal(v) // plain data: cannot fail
	return base64.RawURLEncoding.EncodeToString(raw)
}
