package identity

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// refs remembers who asked which repository for info/refs in the last 60 s.
// mu protects the table.
//
// Bound: 10,000 pairs, the oldest goes; the HEAD of a dumb clone that follows
// it is then no longer recognised as a git request.
type refs struct {
	mu    sync.Mutex
	table table[Digest, struct{}]
}

func (r *refs) init(b bounds) { r.table = newTable[Digest, struct{}](b.refs) }

// AskedRefs records that caller asked repo for info/refs. The service does not
// matter.
func (s *Store) AskedRefs(caller admission.Key, repo Target, now time.Time) {
	k, at := s.callerTarget(caller, repo), s.since(now)
	s.refs.mu.Lock()
	defer s.refs.mu.Unlock()
	s.refs.table.sweep(at, int64(RefsKept))
	s.refs.table.put(k, at)
}

// DidAskRefs reports whether caller asked repo for info/refs within 60 s.
func (s *Store) DidAskRefs(caller admission.Key, repo Target, now time.Time) bool {
	k, at := s.callerTarget(caller, repo), s.since(now)
	s.refs.mu.Lock()
	defer s.refs.mu.Unlock()
	_, ok := s.refs.table.live(k, at, int64(RefsKept))
	return ok
}

func (s *Store) callerTarget(caller admission.Key, repo Target) Digest {
	x := s.hashers.get(kindRefs)
	defer s.hashers.put(x)
	var k [8]byte
	binary.BigEndian.PutUint64(k[:], uint64(caller))
	x.addBytes(k[:])
	x.add(repo.Site)
	x.add(repo.Repository)
	return x.digest()
}
