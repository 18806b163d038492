package adminapi

import (
	"time"

	"github.com/caddy-admission/gateway/admission/spool"
)

// Paths of kept and refused deliveries. Questions choose with the query
// parameters pool, hook, repository, state and limit; a delivery's own path
// needs pool only where several pools keep deliveries.
const (
	DeliveriesPath = "/admission/deliveries" // GET: Deliveries
	ExportPath     = "/admission/export"     // GET: one spool.Detail a line
	RefusedPath    = "/admission/refused"    // GET: RefusedDeliveries

	// Below DeliveriesPath: GET …/{id}[?body=1]: Delivery; DELETE …/{id}; POST
	// …/{id}/replay.
	ReplayWord = "replay"
)

// Deliveries is a list of what is kept, oldest first within a pool.
type Deliveries struct {
	Deliveries []Kept `json:"deliveries"`
}

// Kept is one kept delivery.
type Kept struct {
	Pool string `json:"pool,omitempty"` // "" when read from the files
	spool.Item
}

// Delivery is one kept delivery with its headers, and its body when asked.
type Delivery struct {
	Pool string `json:"pool,omitempty"`
	spool.Detail
}

// RefusedDeliveries are the newest deliveries that were not taken, newest
// first, and how many there were since the start by reason.
type RefusedDeliveries struct {
	Refused []RefusedDelivery `json:"refused"`
	Counts  map[string]uint64 `json:"counts"`
}

// RefusedDelivery is one row of the ingestion contract (docs/recovery.md) for
// one delivery. Unless Verified, what it says of itself comes from anybody.
type RefusedDelivery struct {
	At         time.Time `json:"at"`
	Pool       string    `json:"pool"`
	Hook       string    `json:"hook"`
	Provider   string    `json:"provider"`
	Verified   bool      `json:"verified"`
	DeliveryID string    `json:"delivery_id"` // as the sender numbers it, "" = it did not say
	Event      string    `json:"event"`
	Repository string    `json:"repository"`
	// RepositoryHash is the start of the name's SHA-256, for logs that must
	// not name it; both are "" when the delivery was not verified.
	RepositoryHash string `json:"repository_hash"`
	Reason         string `json:"reason"`       // a way of the contract
	Outcome        string `json:"outcome"`      // as webhook_admission_total counts it
	Status         int    `json:"status"`       // of the answer
	RecoveredBy    string `json:"recovered_by"` // sender, script, operator, owner, gateway, nobody
	How            string `json:"how"`
	Within         string `json:"within,omitempty"`
	API            string `json:"api,omitempty"`
	SameID         bool   `json:"same_id"`
	Note           string `json:"note,omitempty"`
}

// Spool is what one pool keeps. Counters count since its directory was opened.
type Spool struct {
	Dir       string  `json:"dir"`
	Moving    bool    `json:"moving"`     // to another directory; nothing is attempted
	Depth     int     `json:"depth"`      // deliveries that wait or are attempted
	OldestAge float64 `json:"oldest_age"` // of them, seconds
	Dead      int     `json:"dead"`       // set aside

	spool.Snapshot
}

// Hook is one configured hook.
type Hook struct {
	// ConsecutiveRefusals counts deliveries refused for lack of capacity or by
	// their receiver since the last one that was taken: senders disable hooks
	// that meet too many.
	ConsecutiveRefusals int64 `json:"consecutive_refusals"`
}
