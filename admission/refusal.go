package admission

import "time"

// Reason says why a request was refused. The set is closed, so a reason is safe
// as a metric label.
type Reason uint8

// Reasons. Those from ReasonShape to ReasonUpstream are decided outside the engine
// and only counted here, through Controller.CountRefusal.
const (
	ReasonNone            Reason = iota // not refused
	ReasonPoolFull                      // the class holds its max
	ReasonTotalFull                     // the shared rest of the total is taken
	ReasonCallerCap                     // the caller holds its own cap
	ReasonClassBucket                   // the class's request bucket is empty
	ReasonByteBucket                    // the class's byte bucket is too low
	ReasonCallerBucket                  // the caller's request bucket is empty
	ReasonUnprovenFull                  // the part open to unproven callers is taken
	ReasonQueueFull                     // the class's queue is full
	ReasonCallerQueueFull               // the caller's half of the queue is full
	ReasonWaitTimeout                   // no place came within the wait limit
	ReasonDisplaced                     // lost its place in the queue to a smaller group
	ReasonGone                          // the client left while waiting: neither refusal nor error
	ReasonShutdown                      // the gateway is stopping
	ReasonOverflow                      // the budget callers share when the caller table is full
	ReasonShape                         // the request's form is not acceptable
	ReasonLength                        // declared length missing, too long or not a number
	ReasonSignature                     // signature header missing, repeated, malformed or wrong
	ReasonBodyBudget                    // no memory left for bodies read ahead
	ReasonSlowBody                      // the body came too slowly
	ReasonUpstream                      // the worker behind the gateway is broken
	ReasonClonesFull                    // the clones that may run at once do, in the class or of the repository
	ReasonRepositoryFull                // the repository holds its own cap
	NumReasons
)

var reasonNames = [NumReasons]string{
	"none", "pool_full", "total_full", "caller_cap", "class_bucket", "byte_bucket", "caller_bucket",
	"unproven_full", "queue_full", "caller_queue_full", "wait_timeout", "displaced", "gone",
	"shutdown", "overflow", "shape", "length", "signature", "body_budget", "slow_body", "upstream",
	"clones_full", "repository_full",
}

// String returns the name used in headers, metrics and logs.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return "invalid"
}

// callerScope reports whether the caller alone caused a refusal for r.
func (r Reason) callerScope() bool {
	return r == ReasonCallerCap || r == ReasonCallerBucket || r == ReasonCallerQueueFull
}

// Outcome says how a permit ended. The set is closed.
type Outcome uint8

// Outcomes.
const (
	OutcomeCompleted       Outcome = iota // answered to the end
	OutcomeUpstreamRefused                // the upstream answered with a refusal
	OutcomeUpstreamFailed                 // the upstream failed or could not be reached
	OutcomeClientGone                     // the client left
	OutcomeDeadline                       // the class's deadline passed
	OutcomeStalled                        // the client made no progress
	OutcomePanic                          // the handler panicked
	OutcomeMoved                          // the permit went on in another class
	OutcomeAbandoned                      // the client left, the upstream ran on to its end
	OutcomeDisplaced                      // ended in favour of somebody who waited
	NumOutcomes
)

var outcomeNames = [NumOutcomes]string{
	"completed", "upstream_refused", "upstream_failed", "client_gone", "deadline", "stalled",
	"panic", "moved", "abandoned", "displaced",
}

// String returns the name used in metrics and logs.
func (o Outcome) String() string {
	if o < NumOutcomes {
		return outcomeNames[o]
	}
	return "invalid"
}

// Decision is what Admit or TryAdmit decided, for counting. The set is closed.
type Decision uint8

// Decisions. A refusal for reason r is DecisionRefused(r).
const (
	DecisionAdmitted    Decision = iota // granted at once
	DecisionWaited                      // granted after a wait
	DecisionWouldRefuse                 // dry run: granted although a limit says no
	DecisionWouldWait                   // dry run: granted although it would have waited
	DecisionGone                        // left while waiting
	firstRefused
	NumDecisions = firstRefused + Decision(NumReasons)
)

// DecisionRefused is the decision that counts refusals for r.
func DecisionRefused(r Reason) Decision {
	if r == ReasonGone {
		return DecisionGone
	}
	return firstRefused + Decision(r)
}

// String returns admitted, waited, would_refuse, would_wait, gone or
// refused_<reason>. It does not allocate.
func (d Decision) String() string {
	if d < NumDecisions {
		return decisionNames[d]
	}
	return "invalid"
}

var decisionNames = func() (n [NumDecisions]string) {
	copy(n[:], []string{"admitted", "waited", "would_refuse", "would_wait", "gone"})
	for r := range NumReasons {
		n[firstRefused+Decision(r)] = "refused_" + r.String()
	}
	return n
}()

// Refusal says why a request was not admitted and when coming back makes sense.
// Values are shared between requests: read them, never change them.
type Refusal struct {
	Reason Reason
	Class  Class
	// Shared is true when others hold what is missing, false when the caller
	// alone does.
	Shared bool
	// Would is true in dry run: the request was granted all the same, so the
	// permit returned beside the refusal is valid and must be ended.
	Would bool
	// RetryAfter is whole seconds from 1 to 300: the time after which what is
	// missing should be free, spread so that clients do not return together.
	RetryAfter time.Duration
}
