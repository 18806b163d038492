package webhook

import (
	"net/http"
	"slices"
	"time"
)

// Auth is how a profile proves that the sender knows the secret.
type Auth uint8

// The ways of proof.
const (
	HMAC       Auth = iota // MAC over the body or over the form's payload field
	Standard               // Standard Webhooks: MAC over id.timestamp.body
	Ed25519                // signature over body and nonce; the secret is a public key
	Token                  // the header is the secret itself; checked before the body
	Basic                  // HTTP Basic; the secret is user:password; checked before the body
	Unverified             // a credential only the receiver can check; the shape alone is checked
)

// Algorithm is the hash of an HMAC profile.
type Algorithm string

// The algorithms a profile may use.
const (
	SHA1   Algorithm = "sha1"
	SHA256 Algorithm = "sha256"
	SHA512 Algorithm = "sha512"
)

// Body caps of the profile table, in bytes.
const (
	mib         = 1 << 20
	MaxBody     = 25 * mib // what the large forges send at most
	MaxBodyForm = 40 * mib // the same, form-encoded
)

// Deadlines of the profile table.
const (
	longDeadline  = 8 * time.Second
	shortDeadline = 4 * time.Second // senders that give up after 5 s
)

// Profile describes one kind of sender. Profiles come from [Lookup] or
// [Generic] and are never changed afterwards.
type Profile struct {
	Name  string // as written in the configuration
	Label string // for people
	Auth  Auth

	MaxBody     int64         // cap of a JSON body, bytes
	MaxBodyForm int64         // cap of a form body, bytes; 0 = form bodies are not accepted
	Deadline    time.Duration // the gateway's answer must be out by then
	Tolerance   time.Duration // of a signed timestamp, both ways; 0 = no timestamp
	Retries     string        // what the sender does after a failure, for documentation
	Recover     string        // who recovers a refused delivery and how, for documentation

	canonical  rule
	query      string // canonical credential is this query parameter instead of a header
	algorithm  Algorithm
	prefix     string      // of the canonical value, before the digest
	payload    bool        // a form's MAC covers the decoded payload field, not the form
	companions []companion // signature headers that may accompany the canonical one
	required   []rule
	optional   []rule
	nonce      string // header appended to the signed bytes (Ed25519)
	id, event  source
	repository []path // where a verified body names the repository
}

// rule is one header and the form of its value. Names are canonical MIME.
type rule struct {
	name string
	ok   shape
}

// companion is a signature header beside the canonical one.
type companion struct {
	rule
	prefix     string
	sameDigest bool // carries the digest of the canonical header
	sha1       bool // HMAC-SHA1 over the same bytes; verified, since it is forwarded
}

// source is where a delivery fact comes from: a header or a member of the body.
type source struct {
	header string
	member string
}

// path is a member of a top-level object of the body.
type path struct{ object, member string }

// signatureHeaders is every header some receiver reads as a signature or a
// credential of a delivery. One that the profile does not list is refused.
var signatureHeaders = []string{
	"X-Hub-Signature-256", "X-Hub-Signature", "X-Gitea-Signature", "X-Gogs-Signature",
	"X-Forgejo-Signature", "X-Gitlab-Token", "Webhook-Signature", "X-Payload-Signature",
}

// Lookup returns the profile of that name.
func Lookup(name string) (*Profile, bool) {
	for _, p := range profiles {
		if p.Name == name {
			return p, true
		}
	}
	return nil, false
}

// Names returns the names of the table in its order; "generic" is not among
// them because it has no fixed row.
func Names() []string {
	names := make([]string, len(profiles))
	for i, p := range profiles {
		names[i] = p.Name
	}
	return names
}

// NeedsSecret reports whether the profile verifies anything with a secret.
func (p *Profile) NeedsSecret() bool { return p.Auth != Unverified }

// BeforeBody reports whether the credential is checked before the body.
func (p *Profile) BeforeBody() bool { return p.Auth == Token || p.Auth == Basic }

// SecretHeader names the header that holds the secret itself, "" when the
// sender only signs: whoever keeps a delivery must not write it plainly.
func (p *Profile) SecretHeader() string {
	if p.BeforeBody() {
		return p.canonical.name
	}
	return ""
}

// Charge is what an undeclared length costs, in bytes: 25 MiB or the
// profile's cap where that is smaller.
func (p *Profile) Charge() int64 { return min(MaxBody, p.MaxBody) }

// Canonical names the signature header, or "query:NAME".
func (p *Profile) Canonical() string {
	if p.query != "" {
		return "query:" + p.query
	}
	return p.canonical.name
}

// Companions names the signature headers that may come beside the canonical one.
func (p *Profile) Companions() []string {
	var names []string
	for _, c := range p.companions {
		names = append(names, c.name)
	}
	slices.Sort(names)
	return names
}

// Headers names every header of a delivery that means something to a receiver:
// signatures, and what the profile's rules name.
func (p *Profile) Headers() []string {
	list := append(p.Companions(), p.canonical.name, p.nonce, p.id.header, p.event.header)
	for _, r := range slices.Concat(p.required, p.optional) {
		list = append(list, r.name)
	}
	slices.Sort(list)
	return slices.DeleteFunc(slices.Compact(list), func(name string) bool { return name == "" })
}

// Claims is what a request says of itself before anything is verified, as far
// as headers say it: how the sender numbers the delivery and names the event.
func (p *Profile) Claims(h http.Header) (id, event string) {
	return h.Get(p.id.header), h.Get(p.event.header)
}

func (p *Profile) companion(name string) *companion {
	for i := range p.companions {
		if p.companions[i].name == name {
			return &p.companions[i]
		}
	}
	return nil
}
