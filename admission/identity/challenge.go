package identity

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Challenge is an upstream's 401, kept to be given to the next client when
// there is no place to fetch a fresh one. It never holds a cookie.
type Challenge struct {
	Status          int // 401
	WWWAuthenticate []string
	ContentType     string
	Body            []byte
	At              time.Time // when the upstream sent it
}

const (
	maxChallengeBody  = 4 << 10
	maxChallengeLines = 8
	maxChallengeHead  = 2 << 10 // all header values together
)

// challenges keeps the last challenge of each target for 60 s. mu protects
// everything below it.
//
// Bounds: two tables of 5,000 challenges and 4 MiB each; the oldest goes.
// Targets that ever opened to a proof (the last 10,000 of the last 24 h) have
// a table to themselves, because upstreams answer 401 for names that do not
// exist as well, and guessing names must not push out a real one.
type challenges struct {
	mu     sync.Mutex
	opened table[Digest, struct{}]
	real   challengeTable
	other  challengeTable
}

// challengeTable is a table that also bounds the bytes it holds.
type challengeTable struct {
	table[Digest, Challenge]
	bytes, maxBytes int
}

func (c *challenges) init(b bounds) {
	c.opened = newTable[Digest, struct{}](b.opened)
	c.real.init(b)
	c.other.init(b)
}

func (t *challengeTable) init(b bounds) {
	t.table = newTable[Digest, Challenge](b.challenges)
	t.maxBytes = b.challengeMax
	t.dropped = func(i int32, _ bool) { t.bytes -= t.entry(i).value.size() }
}

// SaveChallenge keeps a copy of c for t. The request it answered must have had
// no credential of any kind ([Store.Rest] zero). Only a 401 with 1 to 8
// WWW-Authenticate lines is kept, and none that continues a handshake
// (Negotiate or NTLM with data) or has no time; a body over 4 KiB is left out,
// clients do not need it.
func (s *Store) SaveChallenge(t Target, c Challenge) {
	if !c.replayable() {
		return
	}
	if len(c.Body) > maxChallengeBody {
		c.Body, c.ContentType = nil, ""
	}
	c = c.clone()
	d, at := s.target(t), s.since(c.At)
	s.challenge.mu.Lock()
	defer s.challenge.mu.Unlock()
	s.challenge.tableOf(d, at).save(d, c, at)
}

// Challenge returns the challenge of t if it is less than 60 s old. It shares
// its slices with other callers: do not change them. Count a replay with
// [Store.CountReplay].
func (s *Store) Challenge(t Target, now time.Time) (Challenge, bool) {
	d, at := s.target(t), s.since(now)
	c := &s.challenge
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range []*challengeTable{&c.real, &c.other} {
		if v, ok := t.live(d, at, int64(ChallengeKept)); ok {
			return *v, true
		}
	}
	return Challenge{}, false
}

// CountReplay counts a challenge that was given to a client.
func (s *Store) CountReplay() { s.replayed.Add(1) }

func (c Challenge) replayable() bool {
	if c.Status != http.StatusUnauthorized || c.At.IsZero() ||
		len(c.WWWAuthenticate) == 0 || len(c.WWWAuthenticate) > maxChallengeLines {
		return false
	}
	size := len(c.ContentType)
	for _, line := range c.WWWAuthenticate {
		size += len(line)
		scheme, data, _ := strings.Cut(line, " ")
		if data != "" && (equalFold(scheme, "negotiate") || equalFold(scheme, "ntlm")) {
			return false
		}
	}
	return size <= maxChallengeHead
}

// clone copies the strings too: those of a response are parts of its whole
// header block and would keep it alive.
func (c Challenge) clone() Challenge {
	c.Body = slices.Clone(c.Body)
	c.ContentType = strings.Clone(c.ContentType)
	lines := make([]string, len(c.WWWAuthenticate))
	for i, line := range c.WWWAuthenticate {
		lines[i] = strings.Clone(line)
	}
	c.WWWAuthenticate = lines
	return c
}

// size is what a challenge is charged, in bytes.
func (c *Challenge) size() int {
	n := len(c.ContentType) + len(c.Body)
	for _, line := range c.WWWAuthenticate {
		n += len(line)
	}
	return n
}

// tableOf returns the table for a target and drops it from the other one.
func (c *challenges) tableOf(d Digest, now int64) *challengeTable {
	if _, ok := c.opened.live(d, now, int64(ProofKept)); ok {
		c.other.forget(d)
		return &c.real
	}
	c.real.forget(d)
	return &c.other
}

func (t *challengeTable) save(d Digest, c Challenge, now int64) {
	t.sweep(now, int64(ChallengeKept))
	t.forget(d)
	for t.len() > 0 && t.bytes+c.size() > t.maxBytes {
		t.drop(t.oldest, false)
	}
	t.entry(t.put(d, now)).value = c
	t.bytes += c.size()
}

func (t *challengeTable) forget(d Digest) {
	if i := t.find(d); i != none {
		t.drop(i, false)
	}
}

// knows marks a target as opened by a proof.
func (c *challenges) knows(d Digest, now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened.sweep(now, int64(ProofKept))
	c.opened.put(d, now)
}

// forget drops the challenge of a target that no longer sends one.
func (c *challenges) forget(d Digest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.real.forget(d)
	c.other.forget(d)
}
