package spool

import "time"

// entry is one kept delivery in memory: what order, bounds, duplicates and
// listings need. Everything is guarded by the spool's mutex.
type entry struct {
	seq      uint64
	hook     string
	repo     string
	id       string
	event    string
	provider string
	digest   digest
	received int64
	notAfter int64
	size     int64 // bytes of its record
	body     int64
	at       place
	moved    bool // taken over from another spool, which judged its repository's share
	state
}

// DeadReason says why a delivery is set aside. The set is closed.
type DeadReason string

// The reasons of a dead delivery.
const (
	DeadExhausted DeadReason = "exhausted" // failed as often or as long as the hook allows
	DeadRefused   DeadReason = "refused"   // the receiver will never take it
	DeadExpired   DeadReason = "expired"   // its signed time is over
	DeadTooOld    DeadReason = "too_old"   // undelivered for MaxAge
	DeadCorrupt   DeadReason = "corrupt"   // its bytes do not match their checksum
	DeadNoKey     DeadReason = "no_key"    // its credentials cannot be opened
)

// DeadReasons lists the closed set.
func DeadReasons() []DeadReason {
	return []DeadReason{DeadExhausted, DeadRefused, DeadExpired, DeadTooOld, DeadCorrupt, DeadNoKey}
}

// DropReason says why a kept delivery left the spool undelivered. The set is
// closed.
type DropReason string

// The reasons of a dropped delivery.
const (
	DropOperator DropReason = "operator" // dropped by hand
	DropRevived  DropReason = "revived"  // dead, and the sender sent it again
	DropGaveWay  DropReason = "gave_way" // dead, and a new delivery needed its room
	DropAged     DropReason = "aged"     // dead for MaxAge
	DropCorrupt  DropReason = "corrupt"  // unreadable when its file was cleaned; the file is set aside
	DropMoved    DropReason = "moved"    // taken over by another spool
)

// DropReasons lists the closed set.
func DropReasons() []DropReason {
	return []DropReason{DropOperator, DropRevived, DropGaveWay, DropAged, DropCorrupt, DropMoved}
}

// idKey finds duplicates: the same bytes under the same id for the same hook.
type idKey struct {
	hook, id string
	digest   digest
}

func (e *entry) key() idKey { return idKey{e.hook, e.id, e.digest} }

// nameKey finds the dead deliveries that a redelivery revives.
type nameKey struct{ hook, id string }

func (e *entry) name() nameKey { return nameKey{e.hook, e.id} }

// lineKey is one repository of one hook.
type lineKey struct{ hook, repo string }

func (e *entry) line() lineKey { return lineKey{e.hook, e.repo} }

// usage is what one repository holds of the spool.
type usage struct {
	bytes     int64
	count     int
	deadBytes int64 // of bytes
	dead      int   // of count
}

func (e *entry) trial() Trial {
	return Trial{Attempts: e.Attempts, FirstFail: fromNano(e.FirstFail), NotBefore: fromNano(e.NotBefore)}
}

func (e *entry) setTrial(t Trial) {
	e.Attempts, e.FirstFail, e.NotBefore = t.Attempts, unixNano(t.FirstFail), unixNano(t.NotBefore)
}

func (e *entry) expired(now time.Time) bool {
	return e.notAfter != 0 && now.UnixNano() >= e.notAfter
}

// newEntry is the entry of a record with these facts.
func newEntry(seq uint64, f *facts, bodySize, recordSize int64) *entry {
	e := &entry{
		seq: seq, hook: f.Hook, repo: f.Repository, id: f.ID, event: f.Event, provider: f.Provider,
		received: f.Received, notAfter: f.NotAfter, size: recordSize, body: bodySize, state: f.state,
	}
	copy(e.digest[:], f.Digest)
	return e
}
