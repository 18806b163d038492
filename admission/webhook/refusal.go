package webhook

import "net/http"

// Reason says which check refused a request. The set is closed; String gives
// the stable spelling used in logs and documentation.
type Reason uint8

// The reasons, in the order in which the checks run.
const (
	BadMethod       Reason = iota + 1
	TooLarge               // declared or received bytes above the cap
	NoBody                 // neither a length nor chunks, or a length of zero
	BadContentType         // none, several, another type, or a parameter other than charset=utf-8
	BadEncoding            // any content coding but identity
	HeaderAlias            // a header name that some upstreams fold into one that matters
	BadSignature           // canonical signature header absent, repeated or malformed
	BadCompanion           // another signature header of this sender repeated or malformed
	ForeignHeader          // a signature header of another sender
	DigestMismatch         // signature headers that must carry one digest differ
	BadHeader              // event, delivery or other header absent, repeated or malformed
	BadTimestamp           // signed time outside the tolerance
	BadToken               // credential that needs no body is wrong
	BadForm                // form body that is not exactly one payload field
	BadMAC                 // MAC or signature over the body is wrong
	BadCompanionMAC        // companion MAC is wrong while the canonical one is right
	numReasons
)

var reasons = [numReasons]struct {
	name, text string
	status     int
	stage      Stage
}{
	BadMethod:       {"method", "method not allowed", http.StatusMethodNotAllowed, StageHeaders},
	TooLarge:        {"too_large", "delivery too large", http.StatusRequestEntityTooLarge, StageHeaders},
	NoBody:          {"no_body", "delivery has no body", http.StatusBadRequest, StageHeaders},
	BadContentType:  {"content_type", "content type not accepted", http.StatusBadRequest, StageHeaders},
	BadEncoding:     {"content_encoding", "content encoding not accepted", http.StatusBadRequest, StageHeaders},
	HeaderAlias:     {"header_alias", "ambiguous header name", http.StatusUnauthorized, StageHeaders},
	BadSignature:    {"signature_header", "need exactly one signature header", http.StatusUnauthorized, StageHeaders},
	BadCompanion:    {"companion_header", "companion signature header not accepted", http.StatusUnauthorized, StageHeaders},
	ForeignHeader:   {"foreign_header", "signature header of another sender", http.StatusUnauthorized, StageHeaders},
	DigestMismatch:  {"digest_mismatch", "signature headers disagree", http.StatusUnauthorized, StageHeaders},
	BadHeader:       {"delivery_header", "delivery header not accepted", http.StatusBadRequest, StageHeaders},
	BadTimestamp:    {"timestamp", "timestamp outside tolerance", http.StatusUnauthorized, StageTimestamp},
	BadToken:        {"token", "credential not accepted", http.StatusUnauthorized, StageToken},
	BadForm:         {"form", "form must be exactly one payload field", http.StatusBadRequest, StageForm},
	BadMAC:          {"mac", "signature not accepted", http.StatusUnauthorized, StageMAC},
	BadCompanionMAC: {"companion_mac", "signature not accepted", http.StatusUnauthorized, StageCompanion},
}

// String returns the stable name of the reason.
func (r Reason) String() string {
	if r == 0 || r >= numReasons {
		return "unknown"
	}
	return reasons[r].name
}

// Stage names the step of the whole check at which a refusal falls.
type Stage string

// The stages in order. Everything before [StageForm] needs no body.
const (
	StageHeaders   Stage = "headers"
	StageTimestamp Stage = "timestamp"
	StageToken     Stage = "token"
	StageForm      Stage = "form"
	StageMAC       Stage = "mac"
	StageCompanion Stage = "companion"
)

// Refusal is the answer to a request that is not a genuine delivery. Values
// are shared and immutable: a refusal allocates nothing.
type Refusal struct{ reason Reason }

var refusals = func() (all [numReasons]Refusal) {
	for i := range all {
		all[i].reason = Reason(i)
	}
	return all
}()

func refuse(r Reason) *Refusal { return &refusals[r] }

// Reason returns the check that failed.
func (r *Refusal) Reason() Reason { return r.reason }

// Stage returns the step that failed.
func (r *Refusal) Stage() Stage { return reasons[r.reason].stage }

// Status returns the HTTP status to answer: 400, 401, 405 or 413.
func (r *Refusal) Status() int { return reasons[r.reason].status }

// Error returns a short fixed text that is safe to send and to log.
func (r *Refusal) Error() string { return reasons[r.reason].text }
