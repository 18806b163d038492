package identity

import (
	"slices"
	"sync"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// proofs holds the proven secrets and, for each, the groups it was proven
// from and the last targets it opened. mu protects everything below it.
//
// Bounds: secrets, the one used least recently goes first (it can be proven
// again by one accepted request); 8 groups per secret, likewise; 16 targets
// per secret, the first remembered goes first (a 401 there then ends nothing).
// Only a secret that the upstream accepted takes an entry.
//
// made == held + denied + displaced + expired.
type proofs struct {
	mu    sync.Mutex
	table table[Digest, secret]
	// heads is the most recently used pair of each group that holds any.
	heads map[admission.Key]pairRef
	pairs int

	made, denied, displaced, expired uint64
}

// secret is the value of one proven secret.
type secret struct {
	pairs   [groupsPerSecret]pair
	targets [targetsPerSecret]shortDigest
	next    uint8                       // slot of targets to fill next
	users   [usersPerSecret]shortDigest // accounts with this password, the first accepted first
	account Digest                      // whose secret it is, zero while not known
}

// pair is the proof of one secret from one group. It is linked into the list
// of its group, most recently used first.
type pair struct {
	group        admission.Key
	used         int64
	confirmed    int64 // when the upstream last accepted it
	newer, older pairRef
	held         bool
}

// pairRef names a pair: entry index times 8 plus slot; 0 is no pair.
type pairRef int32

func refOf(i int32, slot int) pairRef { return pairRef(int(i)*groupsPerSecret + slot) }

// shortDigest is a target in short form: a false match only ends a proof early.
type shortDigest [4]byte

func (p *proofs) init(b bounds) {
	p.table = newTable[Digest, secret](b.secrets)
	p.heads = make(map[admission.Key]pairRef)
	p.table.dropped = func(i int32, expired bool) {
		p.unlinkAll(i)
		if expired {
			p.expired++
		} else {
			p.displaced++
		}
	}
}

// Proven reports whether c was proven from group within the last 24 hours,
// and counts as a use. Cost: one map lookup under a mutex, no allocation.
func (s *Store) Proven(c Credential, group admission.Key, now time.Time) bool {
	if !c.Usable() {
		return false
	}
	t := s.since(now)
	p := &s.proofs
	p.mu.Lock()
	defer p.mu.Unlock()
	p.table.sweep(t, int64(ProofKept))
	i, slot := p.find(c.Secret, group, t)
	if slot < 0 {
		return false
	}
	p.use(i, slot, t)
	return true
}

// ProvenGroup reports whether group holds any proof. It is not a use.
func (s *Store) ProvenGroup(group admission.Key, now time.Time) bool {
	t := s.since(now)
	p := &s.proofs
	p.mu.Lock()
	defer p.mu.Unlock()
	// Dead pairs are removed as they are met, so the walk is paid for by what
	// put them there; the limit only keeps one call short.
	for range 64 {
		head := p.heads[group]
		if head == 0 {
			return false
		}
		if p.pair(head).live(t) {
			return true
		}
		p.expire(head)
	}
	return false
}

// Prove records that t accepted c from group and refuses the same request
// without it. It does nothing for a credential that is not usable. With 8
// groups already, the group that used the secret least recently loses it.
func (s *Store) Prove(c Credential, group admission.Key, t Target, now time.Time) {
	if !c.Usable() {
		return
	}
	d := s.target(t)
	s.proofs.prove(c, group, d, s.since(now))
	s.challenge.knows(d, s.since(now))
}

// Opened records that a proven credential was accepted at t: a 401 there will
// end the proof. It does nothing unless c is proven from group.
func (s *Store) Opened(c Credential, group admission.Key, t Target, now time.Time) {
	if !c.Usable() {
		return
	}
	d := s.target(t)
	if s.proofs.opened(c, group, d, s.since(now)) {
		s.challenge.knows(d, s.since(now))
	}
}

// Denied records that t answered 401 to c. If c is proven from this group and
// t is one of the targets it had opened, the secret was changed or revoked,
// and its proofs end in every group. Otherwise nothing happens: a reader's 401
// on a push says nothing about the reader, and a group that never proved the
// secret cannot end it.
func (s *Store) Denied(c Credential, group admission.Key, t Target, now time.Time) {
	if !c.Usable() {
		return
	}
	s.proofs.deny(c.Secret, group, s.target(t), s.since(now))
}

func (p *proofs) prove(c Credential, group admission.Key, target Digest, now int64) {
	d := c.Secret
	p.mu.Lock()
	defer p.mu.Unlock()
	p.table.sweep(now, int64(ProofKept))
	i, slot := p.find(d, group, now)
	if i == none {
		i = p.table.put(d, now)
		p.made++
	}
	if slot < 0 {
		slot = p.claim(i, group, now)
	}
	p.use(i, slot, now)
	p.table.entry(i).value.confirm(slot, target, now)
	p.table.entry(i).value.usedBy(c.User)
}

func (p *proofs) opened(c Credential, group admission.Key, target Digest, now int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, slot := p.find(c.Secret, group, now)
	if slot < 0 {
		return false
	}
	p.use(i, slot, now)
	p.table.entry(i).value.confirm(slot, target, now)
	p.table.entry(i).value.usedBy(c.User)
	return true
}

// User returns the user name of c where it is known to be an account of its own
// beside others with the same password ([Store.Named]), zero otherwise.
func (s *Store) User(c Credential) Digest {
	if i := s.proofs.userSlot(c); i > 0 {
		return c.User
	}
	return Digest{}
}

// NameOpen reports whether c is a proven secret under a name that is new to it,
// so that asking about the name is worth while: is it another account with the
// same password, or does the secret, a token, go with any name?
func (s *Store) NameOpen(c Credential) bool { return s.proofs.userSlot(c) == newUser }

// Named records that the upstream accepted c and refuses its secret under a name
// that nobody has.
func (s *Store) Named(c Credential) {
	if s.proofs.userSlot(c) != newUser {
		return
	}
	p := &s.proofs
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := p.table.find(c.Secret); i != none {
		users := &p.table.entry(i).value.users
		if at := slices.Index(users[:], shortDigest{}); at > 0 {
			users[at] = c.User.short()
		}
	}
}

const newUser = -1 // a name that is not listed, and there is room for it

// userSlot is where the name of c is listed beside its secret: 0 for the first
// that was accepted, and for everybody who has no name or finds no room.
func (p *proofs) userSlot(c Credential) int {
	if !c.Usable() || c.User.Zero() {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.table.find(c.Secret)
	if i == none {
		return 0
	}
	users := p.table.entry(i).value.users[:]
	if at := slices.Index(users, c.User.short()); at >= 0 {
		return at
	}
	if users[0] == (shortDigest{}) || users[usersPerSecret-1] != (shortDigest{}) {
		return 0
	}
	return newUser
}

// usedBy remembers the first name under which the secret was accepted.
func (v *secret) usedBy(user Digest) {
	if !user.Zero() && v.users[0] == (shortDigest{}) {
		v.users[0] = user.short()
	}
}

func (p *proofs) deny(d Digest, group admission.Key, target Digest, now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, slot := p.find(d, group, now)
	if slot < 0 || !p.table.entry(i).value.knows(target) {
		return
	}
	p.unlinkAll(i)
	p.table.remove(i)
	p.denied++
}

// find returns the entry of a secret, or none, and the slot of its live pair
// with group, or -1. It removes the dead pairs of the entry, and the entry
// with its last pair.
func (p *proofs) find(d Digest, group admission.Key, now int64) (i int32, slot int) {
	i, slot = p.table.find(d), -1
	if i == none {
		return none, -1
	}
	held := false
	pairs := &p.table.entry(i).value.pairs
	for k := range pairs {
		x := &pairs[k]
		switch {
		case !x.held:
		case !x.live(now):
			p.unlink(refOf(i, k))
		case x.group == group:
			slot = k
			fallthrough
		default:
			held = true
		}
	}
	if !held {
		p.table.remove(i)
		p.expired++
		return none, -1
	}
	return i, slot
}

// claim links group into a slot of entry i: a free one, or else the least
// recently used.
func (p *proofs) claim(i int32, group admission.Key, now int64) int {
	pairs := &p.table.entry(i).value.pairs
	slot := 0
	for k := range pairs {
		if !pairs[k].held {
			slot = k
			break
		}
		if pairs[k].used < pairs[slot].used {
			slot = k
		}
	}
	if pairs[slot].held {
		p.unlink(refOf(i, slot))
	}
	pairs[slot] = pair{group: group, used: now, confirmed: now, held: true}
	p.link(refOf(i, slot))
	p.pairs++
	return slot
}

// use makes a pair and its secret the most recently used.
func (p *proofs) use(i int32, slot int, now int64) {
	p.table.put(p.table.entry(i).key, now)
	r := refOf(i, slot)
	x := p.pair(r)
	x.used = now
	if x.newer != 0 {
		p.detach(r)
		p.link(r)
	}
}

func (x *pair) live(now int64) bool {
	return now-x.used < int64(ProofKept) && now-x.confirmed < int64(ProofUnconfirmed)
}

// confirm notes an acceptance at target.
func (v *secret) confirm(slot int, target Digest, now int64) {
	v.pairs[slot].confirmed = now
	if v.knows(target) {
		return
	}
	v.targets[v.next] = target.short()
	v.next = (v.next + 1) % targetsPerSecret
}

func (v *secret) knows(target Digest) bool {
	short := target.short()
	for _, known := range v.targets {
		if known == short {
			return true
		}
	}
	return false
}

// short is never zero, which marks an empty slot.
func (d Digest) short() shortDigest { return shortDigest{d[0] | 1, d[1], d[2], d[3]} }

func (p *proofs) pair(r pairRef) *pair {
	return &p.table.entry(int32(r / groupsPerSecret)).value.pairs[r%groupsPerSecret]
}

// expire removes one pair, and its secret when no other pair is left.
func (p *proofs) expire(r pairRef) {
	p.unlink(r)
	i := int32(r / groupsPerSecret)
	pairs := &p.table.entry(i).value.pairs
	for slot := range pairs {
		if pairs[slot].held {
			return
		}
	}
	p.table.remove(i)
	p.expired++
}

func (p *proofs) unlinkAll(i int32) {
	pairs := &p.table.entry(i).value.pairs
	for slot := range pairs {
		if pairs[slot].held {
			p.unlink(refOf(i, slot))
		}
	}
}

func (p *proofs) unlink(r pairRef) {
	p.detach(r)
	*p.pair(r) = pair{}
	p.pairs--
}

func (p *proofs) link(r pairRef) {
	x := p.pair(r)
	x.newer, x.older = 0, p.heads[x.group]
	if x.older != 0 {
		p.pair(x.older).newer = r
	}
	p.heads[x.group] = r
}

func (p *proofs) detach(r pairRef) {
	x := p.pair(r)
	if x.older != 0 {
		p.pair(x.older).newer = x.newer
	}
	switch {
	case x.newer != 0:
		p.pair(x.newer).older = x.older
	case x.older != 0:
		p.heads[x.group] = x.older
	default:
		delete(p.heads, x.group)
	}
}
