// Package adminapi holds the request and response types of the gateway's admin
// endpoints. The server and the command line both use them, so that the two
// cannot drift apart.
package adminapi

// StatePath is where the admin endpoint serves [State].
const StatePath = "/admission/state"

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
	// Identity counts what the gateway knows about credentials; it holds no
	// credential.
	Identity Identity `json:"identity"`
	// Shares is the counted inventory of permits, one line per class.
	Shares []string `json:"shares"`
}

// Total is what the five git classes share, in permits.
type Total struct {
	Max      int `json:"max"`
	InUse    int `json:"in_use"`
	Reserved int `json:"reserved"`
	// Shared is what no class reserves, SharedUsed how much of it is taken.
	Shared     int `json:"shared"`
	SharedUsed int `json:"shared_used"`
}

// Class is one class of a pool. All counts are permits, except Waiting, which
// counts requests.
type Class struct {
	Reserve int `json:"reserve"`
	// Max is 0 when the class is not limited.
	Max int `json:"max"`
	// InUse leaves out abandoned permits; limits count both.
	InUse      int  `json:"in_use"`
	Waiting    int  `json:"waiting"`
	Abandoned  int  `json:"abandoned"`
	SharedUsed int  `json:"shared_used"`
	DryRun     bool `json:"dry_run,omitempty"`
	// Decisions counts decisions since the pool was made; the names are a
	// closed set ("admitted", "waited", "refused_pool_full", …).
	Decisions map[string]int64 `json:"decisions"`
	Hold      Hold             `json:"hold"`
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
}

// Identity is what is known about credentials and repositories.
type Identity struct {
	Proofs             int              `json:"proofs"`
	Questions          map[string]int64 `json:"questions"`
	ChallengesReplayed int64            `json:"challenges_replayed"`
	// Sizes are the fills of the bounded tables behind the proofs.
	Sizes map[string]int `json:"sizes,omitempty"`
}
