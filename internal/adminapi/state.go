// Package adminapi holds the request and response types of the gateway's admin
// endpoints. The server and the command line both use them, so that the two
// cannot drift apart.
package adminapi

import "github.com/caddy-admission/gateway/admission/identity"

// Paths below the admin endpoint.
const (
	StatePath   = "/admission/state"   // GET: State
	ExplainPath = "/admission/explain" // POST ExplainRequest: Explanation
)

// State is the answer of GET /admission/state: every pool of the running
// process, by name. It is a copy; nothing in it changes after it was taken.
type State struct {
	Pools map[string]Pool `json:"pools"`
}

// Pool is one named set of budgets. Active is false when no running
// configuration names the pool any more and only requests admitted earlier
// keep it alive.
type Pool struct {
	Active bool `json:"active"`
	// LimitsChanged says that limits differ from the configuration's because they
	// were changed through LimitsPath.
	LimitsChanged bool             `json:"limits_changed"`
	Total         Total            `json:"total"`
	Classes       map[string]Class `json:"classes"`
	Callers       Callers          `json:"callers"`
	// Identity counts what the gateway knows about credentials and
	// repositories; it holds nothing that names one.
	Identity identity.Snapshot `json:"identity"`
	Verify   Verify            `json:"verify"`
	Ingress  Ingress           `json:"ingress"`
	// AbandonedCut counts abandoned work that was cut because half of its class
	// was abandoned: its upstream may still have run for a while.
	AbandonedCut int64 `json:"abandoned_cut"`
	// Spool is what the pool keeps; nil when it keeps nothing.
	Spool *Spool `json:"spool,omitempty"`
	// Shares is the counted inventory of permits, one line per class and one
	// for the sums.
	Shares []string `json:"shares"`
}

// Total is what the five git classes share, in permits.
type Total struct {
	Max      int `json:"max"`
	InUse    int `json:"in_use"` // abandoned ones included
	Reserved int `json:"reserved"`
	// Shared is what no class reserves, SharedUsed how much of it is taken.
	Shared     int `json:"shared"`
	SharedUsed int `json:"shared_used"`
}

// Class is one class of a pool. All counts are permits, except Waiting, which
// counts requests.
type Class struct {
	Reserve int `json:"reserve"`
	// Max is -1 when the class is not limited.
	Max int `json:"max"`
	// InUse leaves out abandoned permits; limits count both.
	InUse      int  `json:"in_use"`
	Waiting    int  `json:"waiting"`
	Abandoned  int  `json:"abandoned"`
	SharedUsed int  `json:"shared_used"`
	DryRun     bool `json:"dry_run"`
	// Beyond counts permits that dry run granted outside every limit.
	Beyond int `json:"beyond"`
	// Decisions and Outcomes count since the pool was made; the names are
	// closed sets ("admitted", "refused_pool_full", …; "completed", …).
	Decisions map[string]uint64 `json:"decisions"`
	Outcomes  map[string]uint64 `json:"outcomes"`
	Hold      Hold              `json:"hold"`
	// Bucket and Bytes are the levels of the class's buckets of requests and of
	// declared bytes, absent where there is none. Those of login_callback are the
	// budgets of known and unknown states together.
	Bucket *Bucket `json:"bucket,omitempty"`
	Bytes  *Bucket `json:"bytes,omitempty"`
}

// Bucket is the level of a token bucket.
type Bucket struct {
	Burst  int64   `json:"burst"`
	Tokens float64 `json:"tokens"`
}

// Hold summarises how long permits of a class were held.
type Hold struct {
	Count   uint64  `json:"count"`
	Seconds float64 `json:"seconds"`
}

// Callers is the table of callers: how many are remembered, and the bound.
type Callers struct {
	Tracked int `json:"tracked"`
	Max     int `json:"max"`
	Bytes   int `json:"bytes"`
	// Overflow counts decisions that found the table full and used the budget
	// that all newcomers share then.
	Overflow uint64 `json:"overflow"`
}

// Verify counts what a forge was asked about whom a credential or a session
// belongs to, since the pool was made. Nothing in it names one.
type Verify struct {
	Genuine  uint64 `json:"genuine"`  // the forge named a user
	Stranger uint64 `json:"stranger"` // the forge refused
	Unknown  uint64 `json:"unknown"`  // no usable answer
	NoPlace  uint64 `json:"no_place"` // not asked: class candidate was full
	// Known is how many refused ones are remembered and not asked about
	// again.
	Known    int `json:"known_strangers"`
	KnownMax int `json:"known_strangers_max"`
}

// Ingress counts webhooks, logouts and logins since the pool was made. The
// names in its maps are closed sets.
type Ingress struct {
	Webhooks     map[string]int64 `json:"webhooks"` // by outcome
	Limited      map[string]int64 `json:"limited"`  // by class
	Logouts      map[string]int64 `json:"logouts"`  // by outcome
	Senders      int              `json:"senders"`  // known sender groups
	Forgers      int              `json:"forgers"`  // groups that lately sent forged logouts
	LoginStates  int              `json:"login_states"`
	LoginWaiting int              `json:"login_waiting"`
	// Hooks are the configured hooks that had a delivery, by path.
	Hooks map[string]Hook `json:"hooks"`
}
