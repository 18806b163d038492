package spool

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"net/textproto"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Delivery is one verified webhook delivery. The caller must have verified
// it: the spool asks nothing. Body and Header must not be changed after the
// call that took them.
type Delivery struct {
	Provider   string // sender profile, as in the contract table
	ID         string // as the sender numbers deliveries; "" = it does not
	Event      string // as the sender names events; for listings only
	Repository string // what order is kept by; "" = all such deliveries of the hook are one line
	Path       string // escaped path for the receiver; "" = the path of the deliver URL
	Query      string // raw query for the receiver; always sealed on disk
	Header     http.Header
	Body       []byte
	Received   time.Time // zero = now
	NotAfter   time.Time // a replay after this would be refused by the receiver; zero = never
}

// factBound cuts what a sender chose, bytes.
const factBound = 255

func bounded(s string) string {
	if len(s) > factBound {
		s = s[:factBound]
	}
	return strings.ToValidUTF8(s, "?")
}

// headerBound is the most bytes of kept headers of one delivery.
const headerBound = 32 << 10

// keptHeaders are the headers that are written as they are: what the body is
// and who sends which event. Names are canonical.
var keptHeaders = names(
	"Content-Type", "User-Agent", "Accept",
	"X-Github-Event", "X-Github-Event-Type", "X-Github-Delivery", "X-Github-Hook-Id",
	"X-Github-Hook-Installation-Target-Type", "X-Github-Hook-Installation-Target-Id",
	"X-Github-Enterprise-Version", "X-Github-Enterprise-Host",
	"X-Gitea-Event", "X-Gitea-Event-Type", "X-Gitea-Delivery", "X-Gitea-Hook-Installation-Target-Type",
	"X-Forgejo-Event", "X-Forgejo-Event-Type", "X-Forgejo-Delivery",
	"X-Gogs-Event", "X-Gogs-Event-Type", "X-Gogs-Delivery",
	"X-Gitlab-Event", "X-Gitlab-Webhook-Uuid", "X-Gitlab-Event-Uuid", "X-Gitlab-Instance",
	"X-Event-Key", "X-Hook-Uuid", "X-Request-Uuid", "X-Request-Id", "X-Attempt-Number",
	"Idempotency-Key", "Webhook-Id", "Webhook-Timestamp", "X-Webhook-Event", "X-Webhook-Delivery",
)

// secretHeaders are sealed, never written plain: credentials, and signatures,
// which let who has the body send it again.
var secretHeaders = names(
	"Authorization", "X-Gitlab-Token",
	"X-Hub-Signature", "X-Hub-Signature-256",
	"X-Gitea-Signature", "X-Forgejo-Signature", "X-Gogs-Signature",
	"Webhook-Signature", "X-Payload-Signature", "X-Payload-Nonce",
)

func names(list ...string) map[string]bool {
	m := make(map[string]bool, len(list))
	for _, n := range list {
		m[textproto.CanonicalMIMEHeaderKey(n)] = true
	}
	return m
}

// headerRule says what happens to each header of a delivery: kept, sealed,
// left out because the configuration knows it, or dropped.
type headerRule struct {
	kept    map[string]bool
	secret  map[string]bool
	restore map[string]string // header → the value the configuration knows
}

func newHeaderRule(keep, secret []string, restore map[string]string) headerRule {
	r := headerRule{kept: names(keep...), secret: names(secret...), restore: map[string]string{}}
	for name, value := range restore {
		r.restore[textproto.CanonicalMIMEHeaderKey(name)] = value
	}
	return r
}

// split sorts a delivery's headers. plain is written as it is, secret sealed;
// restored names the headers that are left out and added again from the
// configuration at each attempt.
func (r *headerRule) split(h http.Header) (plain, secret http.Header, restored []string) {
	plain, secret = http.Header{}, http.Header{}
	for name, values := range h {
		value, known := r.restore[name]
		switch {
		case len(values) == 0:
		case known && len(values) == 1 && values[0] == value:
			restored = append(restored, name)
		case known, secretHeaders[name], r.secret[name]:
			secret[name] = values
		case keptHeaders[name], r.kept[name]:
			plain[name] = values
		}
	}
	return plain, secret, restored
}

func headerBytes(h http.Header) (n int) {
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

// facts is what a kept delivery's record says beside the body, as JSON.
type facts struct {
	Hook       string      `json:"hook"`
	Provider   string      `json:"provider,omitempty"`
	ID         string      `json:"id,omitempty"`
	Event      string      `json:"event,omitempty"`
	Repository string      `json:"repository,omitempty"`
	Path       string      `json:"path,omitempty"`
	Header     http.Header `json:"header,omitempty"`
	Restored   []string    `json:"restored,omitempty"` // headers the configuration supplies
	Sealed     []byte      `json:"sealed,omitempty"`
	Digest     []byte      `json:"digest"` // see digestOf
	Received   int64       `json:"received"`
	NotAfter   int64       `json:"not_after,omitempty"`
	state
}

// state is the changing part of a kept delivery. Times are Unix nanoseconds,
// 0 = never.
type state struct {
	Attempts  int    `json:"attempts,omitempty"`
	FirstFail int64  `json:"first_fail,omitempty"`
	NotBefore int64  `json:"not_before,omitempty"`
	Last      string `json:"last,omitempty"` // how the last attempt ended, closed set
	Dead      string `json:"dead,omitempty"` // why it is set aside, closed set; "" = due
	DeadAt    int64  `json:"dead_at,omitempty"`
	DueSince  int64  `json:"due_since,omitempty"` // when an operator made it due again
}

// secrets is the sealed part.
type secrets struct {
	Query  string      `json:"query,omitempty"`
	Header http.Header `json:"header,omitempty"`
}

func (s *secrets) empty() bool { return s.Query == "" && len(s.Header) == 0 }

// parcel is a delivery made ready: what its record will hold, and what a
// fresh attempt sends.
type parcel struct {
	facts facts
	body  []byte
	sent  secrets
	sum   digest
}

// digest tells bodies apart that came under one id from a sender that knows
// the secret. Nothing else rests on it, so it is fast rather than one-way.
type digest [16]byte

// digestOf is the XXH64 of the body, and its length.
func digestOf(body []byte) (d digest) {
	binary.BigEndian.PutUint64(d[:], xxhash.Sum64(body))
	binary.BigEndian.PutUint64(d[8:], uint64(len(body)))
	return d
}

// pack checks a delivery's size and sorts its headers for hook.
func pack(hook string, rule *headerRule, s *sealer, d *Delivery, now time.Time) (*parcel, error) {
	if len(d.Body) > maxBody || len(d.Path)+len(d.Query) > headerBound || headerBytes(d.Header) > 1<<20 {
		return nil, ErrTooLarge
	}
	if !d.NotAfter.IsZero() && !d.NotAfter.After(now) {
		return nil, ErrExpired
	}
	plain, secret, restored := rule.split(d.Header)
	if headerBytes(plain)+headerBytes(secret) > headerBound {
		return nil, ErrTooLarge
	}
	received := d.Received
	if received.IsZero() {
		received = now
	}
	p := &parcel{body: d.Body, sum: digestOf(d.Body), sent: secrets{d.Query, secret}}
	p.facts = facts{
		Hook: hook, Provider: bounded(d.Provider), ID: bounded(d.ID), Event: bounded(d.Event),
		Repository: bounded(d.Repository), Path: d.Path,
		Header: plain, Restored: restored, Digest: p.sum[:], Received: received.UnixNano(),
	}
	if !d.NotAfter.IsZero() {
		p.facts.NotAfter = d.NotAfter.UnixNano()
	}
	if !p.sent.empty() {
		var err error
		if p.facts.Sealed, err = s.seal(&p.sent, hook); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (f *facts) encode() ([]byte, error) {
	b, err := json.Marshal(f)
	if err == nil && len(b) > maxFacts {
		err = ErrTooLarge
	}
	return b, err
}

func unixNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromNano(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
