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
	Active  bool             `json:"active"`
	Total   Total            `json:"total"`
	Classes map[string]Class `json:"classes"`
	Callers Callers          `json:"callers"`
	// Identity counts what the gateway knows about credentials and
	// repositories; it holds nothing that names one.
	Identity identity.Snapshot `json:"identity"`
	Verify   Verify            `json:"verify"`
	Ingress  Ingress           `json:"ingress"`
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
	// Tokens are what the class's budgets have left; nil where it has none,
	// and for logins, whose budgets are kept apart.
	Tokens *Tokens `json:"tokens,omitempty"`
}

// Tokens are what is left in a class's buckets now, 0 for a bucket that is
// off. A byte is one token.
type Tokens struct {
	Requests float64 `json:"requests"`
	Bytes    float64 `json:"bytes"`
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
}
