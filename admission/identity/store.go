package identity

import (
	"sync/atomic"
	"time"
)

// How long things are kept.
const (
	// ProofKept: a proof ends so long after its last use.
	ProofKept = 24 * time.Hour
	// ProofUnconfirmed: a proof ends so long after the upstream last accepted
	// its secret from its group, however often it is used: a revoked secret
	// that only ever meets 401 elsewhere does not keep its place for ever.
	ProofUnconfirmed = 7 * 24 * time.Hour
	// AnswerKept: an answer to a question, or a bare request's acceptance.
	AnswerKept = 10 * time.Minute
	// RefusalKept: a bare request's refusal.
	RefusalKept = time.Minute
	// ChallengeKept: a challenge may be replayed for so long.
	ChallengeKept = time.Minute
	// RefsKept: a caller may ask for HEAD so long after info/refs.
	RefsKept = time.Minute
	// GroupKept: a remembered group is forgotten so long after its last proof.
	GroupKept = 30 * 24 * time.Hour
	// QuestionLimit is the time a question gets.
	QuestionLimit = 5 * time.Second
)

// Bounds per secret, fixed because they size the entries.
const (
	groupsPerSecret  = 8
	targetsPerSecret = 16
	usersPerSecret   = 4
)

// bounds are the sizes of the tables. What goes when one is full stands with
// each table; it is the oldest entry everywhere.
type bounds struct {
	secrets      int // proven secrets
	bareAnswers  int // answers with an empty rest
	restAnswers  int // answers with another credential in the rest
	refusals     int // bare requests just refused
	flights      int // questions being asked at once
	followers    int // callers waiting for one question
	challenges   int // in each of the two tables
	challengeMax int // bytes in each of the two tables
	opened       int // targets known to have opened to a proof
	refs         int // (caller, repository) pairs
	groups       int // remembered groups
}

var defaultBounds = bounds{
	secrets: 100_000, bareAnswers: 8_000, restAnswers: 2_000, refusals: 10_000,
	flights: 1_024, followers: 64, challenges: 5_000, challengeMax: 4 << 20,
	opened: 10_000, refs: 10_000, groups: 1 << 16,
}

// Store is everything the gateway knows about credentials. It lives as long as
// the process and survives a configuration reload; only the remembered groups
// survive a restart, through [Store.ExportGroups]. Make one with [NewStore];
// the zero value is not usable. Safe for concurrent use. At its
// bounds it holds about 100 MB (TestMemory prints what an entry of each table
// costs); a thousand secrets take less than 1 MB.
//
// Every method that takes a time expects the present. Times that differ by the
// length of a request are harmless: tables order entries by when they were put.
type Store struct {
	epoch     time.Time
	hashers   *hashers
	proofs    proofs
	answers   answers
	challenge challenges
	refs      refs
	groups    groups
	replayed  atomic.Uint64
}

// NewStore makes an empty store with a random key of its own.
func NewStore() *Store { return newStore(defaultBounds) }

func newStore(b bounds) *Store {
	s := &Store{epoch: time.Now(), hashers: newHashers()}
	s.proofs.init(b)
	s.answers.init(b)
	s.challenge.init(b)
	s.refs.init(b)
	s.groups.init(b)
	return s
}

// since puts a time on the store's clock: nanoseconds after its making, by the
// monotonic clock where now has a reading of it.
func (s *Store) since(now time.Time) int64 { return int64(now.Sub(s.epoch)) }

// Target is one service of one repository of one site. Service is
// the name of a git service, or of one of LFS; this package only compares it.
type Target struct {
	Site       string
	Repository string // canonical name, see classify.Result
	Service    string
}

// target names t in the tables. Strings chosen by callers are never kept.
func (s *Store) target(t Target) Digest {
	x := s.hashers.get(kindTarget)
	defer s.hashers.put(x)
	x.add(t.Site)
	x.add(t.Repository)
	x.add(t.Service)
	return x.digest()
}

// withRest names t together with the rest of a request's credentials.
func (s *Store) withRest(t Target, rest Digest) Digest {
	x := s.hashers.get(kindAnswer)
	defer s.hashers.put(x)
	x.add(t.Site)
	x.add(t.Repository)
	x.add(t.Service)
	x.addBytes(rest[:])
	return x.digest()
}
