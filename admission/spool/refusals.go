package spool

import (
	"sync"
	"time"
)

// Refused is one delivery that was not taken. Its strings may come from a
// stranger: they are bounded, are for listings only and must not become
// labels.
type Refused struct {
	At         time.Time `json:"at"`
	Hook       string    `json:"hook"` // configured name
	Provider   string    `json:"provider"`
	Way        Way       `json:"way"`
	Outcome    string    `json:"outcome,omitempty"` // as the ingress counts it, closed set
	Status     int       `json:"status,omitempty"`  // of the answer
	Verified   bool      `json:"verified"`          // the sender proved to know the secret
	Delivery   string    `json:"delivery,omitempty"`
	Event      string    `json:"event,omitempty"`
	Repository string    `json:"repository,omitempty"` // only when verified
	Recoverer  Recoverer `json:"recoverer"`
}

// Refusals remembers the newest refused deliveries, without bodies: verified
// ones and others each in a ring of their own, so that a stranger's forgeries
// push out no real one. It is in memory only, counts for ever and is safe for
// concurrent use.
type Refusals struct {
	mu       sync.Mutex
	verified ring
	others   ring
	counts   map[Way]uint64
}

const (
	verifiedBound = 1024
	othersBound   = 256
)

// NewRefusals returns an empty memory.
func NewRefusals() *Refusals {
	return &Refusals{verified: ring{max: verifiedBound}, others: ring{max: othersBound}, counts: map[Way]uint64{}}
}

// Record takes one refusal and fills in its recoverer.
func (r *Refusals) Record(f Refused) {
	f.Delivery, f.Event = bounded(f.Delivery), bounded(f.Event)
	f.Repository, f.Provider = bounded(f.Repository), bounded(f.Provider)
	if !f.Verified {
		f.Repository = ""
	}
	f.Recoverer = Recovery(f.Provider, f.Way)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[f.Way]++
	if f.Verified {
		r.verified.put(f)
	} else {
		r.others.put(f)
	}
}

// List returns what is remembered, newest first, and the counts since the
// start by way.
func (r *Refusals) List() (list []Refused, counts map[Way]uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, b := r.verified.newest(), r.others.newest()
	for len(a) > 0 && len(b) > 0 {
		if b[0].At.After(a[0].At) {
			list, b = append(list, b[0]), b[1:]
		} else {
			list, a = append(list, a[0]), a[1:]
		}
	}
	counts = make(map[Way]uint64, len(r.counts))
	for w, n := range r.counts {
		counts[w] = n
	}
	return append(append(list, a...), b...), counts
}

// ring keeps the newest max values.
type ring struct {
	max  int
	list []Refused
	next int
}

func (r *ring) put(f Refused) {
	if len(r.list) < r.max {
		r.list = append(r.list, f)
		return
	}
	r.list[r.next] = f
	r.next = (r.next + 1) % r.max
}

func (r *ring) newest() []Refused {
	out := make([]Refused, 0, len(r.list))
	for i := range r.list {
		out = append(out, r.list[(r.next+len(r.list)-1-i)%len(r.list)])
	}
	return out
}
