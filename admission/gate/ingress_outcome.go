package gate

import (
	"sync/atomic"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/webhook"
)

// HookOutcome is how a request on a hook's path ended. Every such request is
// counted under exactly one. The set is closed, so the name is safe as the
// label of webhook_admission_total.
type HookOutcome uint8

// The outcomes: refused before anything was spent, refused by a budget, ended
// while the permit was held, refused by verification, and committed.
const (
	HookLookalike HookOutcome = iota // a spelling of the path that is not the path
	HookMethod
	HookLength          // declared length missing, zero or above the cap
	HookContent         // content type or encoding
	HookSignature       // canonical header, companion, alias or foreign header
	HookHeader          // event, delivery or another header
	HookTimestamp       // signed time outside the tolerance
	HookCredential      // token or Basic credential wrong
	HookRequests        // the group's request bucket
	HookBytes           // the group's byte bucket
	HookOwnBucket       // the hook's own request or byte bucket
	HookSender          // an unknown sender's share while known senders exist
	HookPermit          // no verify permit
	HookShutdown        // the gateway is stopping
	HookDisplaced       // an unknown sender gave its permit to a known one
	HookSlow            // the body came too slowly
	HookBodyTooLarge    // more bytes than the cap arrived
	HookBodyBroken      // the client left or broke off during the body
	HookForm            // a form that is not exactly one payload field
	HookMAC             // signature over the body wrong
	HookDelivered       // the upstream took it: 2xx or 3xx
	HookUpstreamRefused // the upstream answered 4xx
	HookUpstreamFailed  // the upstream answered 5xx or could not be reached
	HookDeadline        // the deadline passed before all of the body came or the upstream answered
	HookGone            // the client left before the upstream answered
	HookPanic           // the handler behind panicked
	HookKept            // written to the spool and acknowledged
	HookKeepFailed      // could neither be kept nor delivered
	numHookOutcomes
)

var hookOutcomeNames = [numHookOutcomes]string{
	"lookalike", "method", "length", "content", "signature", "header", "timestamp", "credential",
	"requests", "bytes", "own_bucket", "sender", "permit", "shutdown", "displaced",
	"slow", "body_too_large", "body_broken", "form", "mac",
	"delivered", "upstream_refused", "upstream_failed", "deadline", "gone", "panic",
	"kept", "keep_failed",
}

// String returns the label value.
func (o HookOutcome) String() string {
	if o < numHookOutcomes {
		return hookOutcomeNames[o]
	}
	return "invalid"
}

// HookOutcomes returns every outcome in order, for documentation and metrics.
func HookOutcomes() []HookOutcome {
	all := make([]HookOutcome, numHookOutcomes)
	for i := range all {
		all[i] = HookOutcome(i)
	}
	return all
}

// hookOutcomeOf maps a refusal of package webhook.
func hookOutcomeOf(r webhook.Reason) HookOutcome {
	switch r {
	case webhook.BadMethod:
		return HookMethod
	case webhook.TooLarge, webhook.NoBody:
		return HookLength
	case webhook.BadContentType, webhook.BadEncoding:
		return HookContent
	case webhook.BadHeader:
		return HookHeader
	case webhook.BadTimestamp:
		return HookTimestamp
	case webhook.BadToken:
		return HookCredential
	case webhook.BadForm:
		return HookForm
	case webhook.BadMAC, webhook.BadCompanionMAC:
		return HookMAC
	}
	return HookSignature
}

// limitedClasses are the label values of public_request_limited_total.
var limitedClasses = [...]admission.Class{admission.Webhook, admission.Logout, admission.LoginStart, admission.LoginCallback}

// ingressCounters are the counters of one State. They only grow.
type ingressCounters struct {
	hooks   [numHookOutcomes]atomic.Int64
	limited [len(limitedClasses)]atomic.Int64
	logouts [numLogoutOutcomes]atomic.Int64
}

// limit counts a request of class that a bucket, a pool or a wait refused.
func (c *ingressCounters) limit(class admission.Class) {
	for i, k := range limitedClasses {
		if k == class {
			c.limited[i].Add(1)
		}
	}
}

// lookalike counts a spelling of a configured path that is not the path.
func (c *ingressCounters) lookalike(class admission.Class) {
	switch class {
	case admission.Webhook:
		c.hooks[HookLookalike].Add(1)
	case admission.Logout:
		c.logouts[LogoutLookalike].Add(1)
	}
}
