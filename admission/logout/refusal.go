package logout

import "net/http"

// Reason says which check refused a logout request. The set is closed.
type Reason uint8

// The reasons, in the order in which the checks run.
const (
	BadMethod      Reason = iota + 1
	TooLarge              // declared or received bytes above the cap
	NoBody                // neither a length nor chunks, or a length of zero
	BadContentType        // anything but one form type with at most charset=utf-8
	BadEncoding           // any content coding but identity
	BadQuery              // logout_token in the query, where a framework may read it
	BadForm               // not exactly one non-empty logout_token in the form
	BadToken              // not three base64url segments of allowed size
	BadHeader             // JOSE header: not an object, repeated member, forbidden member, type
	BadAlgorithm          // algorithm not in the list, or a signature it cannot have made
	BadClaims             // a claim is missing, forbidden, repeated or malformed
	BadIssuer             // issuer or audience is not configured
	BadTime               // issued or expired outside the leeway
	BadSignature          // signature wrong, or its key is not the issuer's
	NoKeys                // the issuer's keys are not available
	numReasons
)

var reasons = [numReasons]struct {
	name   string
	status int
}{
	BadMethod:      {"method", http.StatusMethodNotAllowed},
	TooLarge:       {"too_large", http.StatusRequestEntityTooLarge},
	NoBody:         {"no_body", http.StatusBadRequest},
	BadContentType: {"content_type", http.StatusBadRequest},
	BadEncoding:    {"content_encoding", http.StatusBadRequest},
	BadQuery:       {"query", http.StatusBadRequest},
	BadForm:        {"form", http.StatusBadRequest},
	BadToken:       {"token", http.StatusBadRequest},
	BadHeader:      {"token_header", http.StatusBadRequest},
	BadAlgorithm:   {"algorithm", http.StatusBadRequest},
	BadClaims:      {"claims", http.StatusBadRequest},
	BadIssuer:      {"issuer", http.StatusBadRequest},
	BadTime:        {"time", http.StatusBadRequest},
	BadSignature:   {"signature", http.StatusBadRequest},
	NoKeys:         {"no_keys", http.StatusServiceUnavailable},
}

// String returns the stable name of the reason.
func (r Reason) String() string {
	if r == 0 || r >= numReasons {
		return "unknown"
	}
	return reasons[r].name
}

// Refusal is the answer to a request that is not a genuine logout. Values are
// shared and immutable.
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

// Status returns the HTTP status to answer: 400, 405, 413 or 503.
func (r *Refusal) Status() int { return reasons[r.reason].status }

// Error returns the stable name of the reason, safe to send and to log.
func (r *Refusal) Error() string { return r.reason.String() }
