package identity

import (
	"sync"
	"time"
)

// Answer is what the upstream says to a target without the Authorization line.
type Answer uint8

const (
	// Unknown: not asked, or the upstream could not say (429, 5xx, time-out).
	Unknown Answer = iota
	// Refused: a credential that is accepted there is genuine.
	Refused
	// Accepted: a credential that is accepted there shows nothing.
	Accepted
)

// String returns the answer's name; it is safe as a label.
func (a Answer) String() string {
	switch a {
	case Refused:
		return "refused"
	case Accepted:
		return "accepted"
	}
	return "unknown"
}

// answers remembers what is known per (target, rest). mu protects everything
// below it; it is never held while a question is asked.
//
// Bounds: bare and rest, 10,000 together, are apart so that a client which
// varies its cookies cannot push out what everybody needs; refused, kept 60 s,
// is apart so that guessed names cannot either. In each the oldest goes, which
// costs a question. A question beyond flights, or a follower beyond followers,
// gets Unknown at once: its credential stays unproven, nothing else happens.
type answers struct {
	mu      sync.Mutex
	bare    table[Digest, Answer]
	rest    table[Digest, Answer]
	refused table[Digest, struct{}]
	flights map[Digest]*flight

	maxFlights, maxFollowers int

	asked    [Accepted + 1]uint64 // questions sent, by answer
	saved    uint64               // calls answered from the tables
	followed uint64               // calls that shared somebody's question
	overflow uint64               // calls refused by a bound
}

func (a *answers) init(b bounds) {
	a.bare = newTable[Digest, Answer](b.bareAnswers)
	a.rest = newTable[Digest, Answer](b.restAnswers)
	a.refused = newTable[Digest, struct{}](b.refusals)
	a.flights = make(map[Digest]*flight)
	a.maxFlights, a.maxFollowers = b.flights, b.followers
}

// RecordBare records what the upstream just said to a client's own request
// without an Authorization line. Accepted counts as an answer for 10 minutes.
// Refused only saves a question for 60 s and never overrules an Accepted that
// is still kept; report it only for a 401, since 403 and 404 may depend on who
// asks. Unknown records nothing.
func (s *Store) RecordBare(t Target, rest Digest, answer Answer, now time.Time) {
	if answer != Refused && answer != Accepted {
		return
	}
	k, at := s.withRest(t, rest), s.since(now)
	s.answers.record(k, rest.Zero(), answer, at)
	if answer == Accepted && rest.Zero() {
		s.challenge.forget(s.target(t))
	}
}

// Open reports whether t accepted a request without any credential within the
// last 10 minutes.
func (s *Store) Open(t Target, now time.Time) bool {
	k, at := s.withRest(t, Digest{}), s.since(now)
	a := &s.answers
	a.mu.Lock()
	defer a.mu.Unlock()
	answer, ok := a.bare.live(k, at, int64(AnswerKept))
	return ok && *answer == Accepted
}

func (a *answers) record(k Digest, bare bool, answer Answer, now int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if answer == Accepted {
		a.keep(k, bare, Accepted, now)
		return
	}
	if a.known(k, bare, now) == Accepted {
		return
	}
	a.refused.sweep(now, int64(RefusalKept))
	a.refused.put(k, now)
}

// keep stores an answer. The caller has made sure that Refused does not
// replace an Accepted that is still kept. a.mu is held.
func (a *answers) keep(k Digest, bare bool, answer Answer, now int64) {
	t := a.table(bare)
	t.sweep(now, int64(AnswerKept))
	t.entry(t.put(k, now)).value = answer
	if i := a.refused.find(k); i != none {
		a.refused.remove(i)
	}
}

// known looks in every table. a.mu is held.
func (a *answers) known(k Digest, bare bool, now int64) Answer {
	if answer, ok := a.table(bare).live(k, now, int64(AnswerKept)); ok {
		return *answer
	}
	if _, ok := a.refused.live(k, now, int64(RefusalKept)); ok {
		return Refused
	}
	return Unknown
}

func (a *answers) table(bare bool) *table[Digest, Answer] {
	if bare {
		return &a.bare
	}
	return &a.rest
}
