package identity

// Level is the fill of a table.
type Level struct {
	Held int `json:"held"`
	Max  int `json:"max"`
}

// Questions counts questions by answer.
type Questions struct {
	Unknown  uint64 `json:"unknown"`
	Refused  uint64 `json:"refused"`
	Accepted uint64 `json:"accepted"`
}

// Snapshot is the state of a [Store]: sizes with their bounds, and counters
// since the process began. It holds nothing that identifies anybody. Entries
// that expired but were not swept yet are counted as held. Each table is read
// at its own moment.
type Snapshot struct {
	Secrets    Level `json:"secrets"`
	Proofs     Level `json:"proofs"` // (secret, group) pairs
	Groups     int   `json:"groups"` // that hold a proof
	Answers    Level `json:"answers"`
	Refusals   Level `json:"refusals"`
	Asking     Level `json:"asking"`
	Challenges Level `json:"challenges"`
	// ChallengeBytes is what the kept challenges are charged.
	ChallengeBytes Level `json:"challenge_bytes"`
	Opened         Level `json:"opened"` // targets known to open to a proof
	Refs           Level `json:"refs"`
	Remembered     Level `json:"remembered_groups"`

	// Secrets proven, and how they ended: ProofsMade is always the sum of the
	// held and the three others.
	ProofsMade      uint64 `json:"proofs_made"`
	ProofsDenied    uint64 `json:"proofs_denied"`
	ProofsDisplaced uint64 `json:"proofs_displaced"`
	ProofsExpired   uint64 `json:"proofs_expired"`

	Questions         Questions `json:"questions"`
	QuestionsSaved    uint64    `json:"questions_saved"`    // the answer was known
	QuestionsShared   uint64    `json:"questions_shared"`   // waited for another's
	QuestionsOverflow uint64    `json:"questions_overflow"` // refused by a bound

	ChallengesReplayed uint64 `json:"challenges_replayed"`
}

// Snapshot returns the state. Cost: a few short critical sections.
func (s *Store) Snapshot() Snapshot {
	v := Snapshot{ChallengesReplayed: s.replayed.Load()}
	s.proofs.snapshot(&v)
	s.answers.snapshot(&v)
	s.challenge.snapshot(&v)
	s.refs.mu.Lock()
	v.Refs = level(&s.refs.table)
	s.refs.mu.Unlock()
	s.groups.mu.Lock()
	v.Remembered = level(&s.groups.table)
	s.groups.mu.Unlock()
	return v
}

func level[K comparable, V any](t *table[K, V]) Level { return Level{t.len(), t.max} }

func (p *proofs) snapshot(v *Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v.Secrets = level(&p.table)
	v.Proofs = Level{p.pairs, p.table.max * groupsPerSecret}
	v.Groups = len(p.heads)
	v.ProofsMade, v.ProofsDenied = p.made, p.denied
	v.ProofsDisplaced, v.ProofsExpired = p.displaced, p.expired
}

func (a *answers) snapshot(v *Snapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v.Answers = Level{a.bare.len() + a.rest.len(), a.bare.max + a.rest.max}
	v.Refusals = level(&a.refused)
	v.Asking = Level{len(a.flights), a.maxFlights}
	v.Questions = Questions{a.asked[Unknown], a.asked[Refused], a.asked[Accepted]}
	v.QuestionsSaved, v.QuestionsShared, v.QuestionsOverflow = a.saved, a.followed, a.overflow
}

func (c *challenges) snapshot(v *Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v.Challenges = Level{c.real.len() + c.other.len(), c.real.max + c.other.max}
	v.ChallengeBytes = Level{c.real.bytes + c.other.bytes, c.real.maxBytes + c.other.maxBytes}
	v.Opened = level(&c.opened)
}
