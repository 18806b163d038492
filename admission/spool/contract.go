package spool

import (
	"encoding/json"
	"slices"
)

// Way is how a delivery can fail to reach its receiver. The set is closed.
type Way string

// The ways.
const (
	WayOverload  Way = "overload"         // a bucket or a pool was full
	WaySpoolFull Way = "spool_full"       // a bound of the spool is reached
	WaySpoolDown Way = "spool_failed"     // its disk failed or it is closed
	WayDeadline  Way = "deadline"         // the body or the answer took too long
	WayUpstream  Way = "upstream_failed"  // keep off: the receiver failed or could not be reached
	WayRefused   Way = "upstream_refused" // the receiver's refusal was passed on
	WaySignature Way = "signature"        // not verified
	WayShape     Way = "shape"            // method, type, encoding or headers
	WayTooLarge  Way = "too_large"        // above the cap
	WayExpired   Way = "expired"          // the signed time was over
	WayDead      Way = "dead"             // acknowledged, then set aside by the spool
	WayDamaged   Way = "damaged"          // acknowledged, then lost by the disk
)

// Ways lists the closed set in the order of the table.
func Ways() []Way {
	return []Way{WayOverload, WaySpoolFull, WaySpoolDown, WayDeadline, WayUpstream, WayRefused,
		WaySignature, WayShape, WayTooLarge, WayExpired, WayDead, WayDamaged}
}

// Who recovers a delivery. The set is closed.
type Who string

// Those who recover.
const (
	BySender   Who = "sender"   // the forge, by itself
	ByScript   Who = "script"   // an API call, by a person or a job
	ByOperator Who = "operator" // a person, in the forge's web pages
	ByOwner    Who = "owner"    // the hook's owner, after mending its settings
	ByGateway  Who = "gateway"  // the gateway's operator, from the spool
	ByNobody   Who = "nobody"
)

// Recoverer is one row of the contract: what the sender is told, who brings
// the delivery back and how.
type Recoverer struct {
	Provider string `json:"provider"`
	Way      Way    `json:"way"`
	Status   string `json:"status"` // what the sender sees
	Who      Who    `json:"who"`
	How      string `json:"how"`
	Within   string `json:"within,omitempty"` // how long it can be brought back
	API      string `json:"api,omitempty"`    // method and path at the sender
	SameID   bool   `json:"same_id"`          // the redelivery has the same id
	Note     string `json:"note,omitempty"`   // what the refusal does to the hook
}

// Recovery returns the row of a provider and a way. An unknown provider is
// treated like "generic".
func Recovery(provider string, way Way) Recoverer {
	s, ok := senders[provider]
	if !ok {
		provider, s = "generic", senders["generic"]
	}
	r := Recoverer{Provider: provider, Way: way, Status: wayStatus[way], Note: s.note, SameID: s.sameID}
	switch way {
	case WayDead:
		r.Who, r.Note, r.SameID = ByGateway, "", true
		r.How = "mend the receiver, then `caddy admission deliveries replay <id>`; a redelivery by the sender passes too"
		r.Within = "the spool's max_age"
	case WaySignature, WayShape, WayExpired:
		r.Who = ByOwner
		r.How = ownerMends[way] + ", then: " + s.how
		r.API, r.Within = s.api, s.within
	case WayTooLarge:
		r.Who, r.How = ByNobody, "split the push, or raise the cap and then: "+s.how
		r.API, r.Within = s.api, s.within
	default:
		r.Who, r.How, r.API, r.Within = s.who, s.how, s.api, s.within
		if slices.Contains(s.retries, way) {
			r.Who, r.How = BySender, s.retry+"; after that: "+s.how
		}
	}
	return r
}

// wayStatus is what the sender is told.
var wayStatus = map[Way]string{
	WayOverload: "503", WaySpoolFull: "503", WaySpoolDown: "503", WayDeadline: "503 or a closed connection",
	WayUpstream: "502 or 504", WayRefused: "the receiver's (404, 410 and 429 become 502)",
	WaySignature: "401", WayShape: "400 or 405", WayTooLarge: "413", WayExpired: "401 or 503",
	WayDead: "202", WayDamaged: "202",
}

var ownerMends = map[Way]string{
	WaySignature: "make the secret the same on both sides",
	WayShape:     "mend the hook's settings (content type, method) or the profile in the gateway",
	WayExpired:   "set the clocks of both sides",
}

// Contract returns every row, providers in name order.
func Contract() []Recoverer {
	var rows []Recoverer
	for _, p := range Providers() {
		for _, w := range Ways() {
			rows = append(rows, Recovery(p, w))
		}
	}
	return rows
}

// Providers lists the providers of the table.
func Providers() []string {
	var list []string
	for name := range senders {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// ContractJSON is Contract for machines.
func ContractJSON() ([]byte, error) {
	b, err := json.MarshalIndent(Contract(), "", "\t")
	return append(b, '\n'), err
}
