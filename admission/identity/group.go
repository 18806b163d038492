package identity

import (
	"net/netip"
	"sync"
	"time"
)

// groups remembers the networks that carried a proof in the last 30 days. It
// holds no credential and nothing that leads to one. mu protects everything
// below it.
//
// Bound: 65,536 networks; the one whose last proof is longest ago goes, and is
// then treated like any other network. Times are whole seconds of the wall
// clock, because they outlive the process.
type groups struct {
	mu      sync.Mutex
	table   table[groupPrefix, struct{}]
	changes uint64
}

// groupPrefix is a /24 or /48 in 7 bytes: 4 or 6, then the first 3 or 6 bytes
// of the address, then zeros.
type groupPrefix [7]byte

func (g *groups) init(b bounds) { g.table = newTable[groupPrefix, struct{}](b.groups) }

const groupKeptSeconds = int64(GroupKept / time.Second)

// GroupPrefix returns the network that groups addr: /24 for IPv4 (also inside
// IPv6), /48 for IPv6. Invalid for an invalid address.
func GroupPrefix(addr netip.Addr) netip.Prefix {
	if addr = addr.Unmap().WithZone(""); !addr.IsValid() {
		return netip.Prefix{}
	}
	bits := 48
	if addr.Is4() {
		bits = 24
	}
	p, _ := addr.Prefix(bits) // no error: bits fit the address
	return p
}

// RememberGroup records that a proof was made or used from prefix. The prefix
// is widened to its group; one wider than that, or invalid, is ignored.
func (s *Store) RememberGroup(prefix netip.Prefix, now time.Time) {
	g, ok := groupOf(prefix)
	if !ok {
		return
	}
	at := now.Unix()
	s.groups.mu.Lock()
	defer s.groups.mu.Unlock()
	t := &s.groups.table
	t.sweep(at, groupKeptSeconds)
	// A day is near enough to keep the 30 days, and spares the writer.
	if i := t.find(g); i == none || at-t.entry(i).at >= 24*60*60 {
		s.groups.changes++
	}
	t.put(g, at)
}

// GroupRemembered reports whether prefix, widened to its group, carried a
// proof in the last 30 days.
func (s *Store) GroupRemembered(prefix netip.Prefix, now time.Time) bool {
	g, ok := groupOf(prefix)
	if !ok {
		return false
	}
	s.groups.mu.Lock()
	defer s.groups.mu.Unlock()
	_, ok = s.groups.table.live(g, now.Unix(), groupKeptSeconds)
	return ok
}

// GroupChanges returns a number that grows when a group is added, or seen
// again a day or more after it was last: when it is worth exporting again.
func (s *Store) GroupChanges() uint64 {
	s.groups.mu.Lock()
	defer s.groups.mu.Unlock()
	return s.groups.changes
}

func groupOf(prefix netip.Prefix) (g groupPrefix, ok bool) {
	group := GroupPrefix(prefix.Addr())
	bits := prefix.Bits()
	if prefix.Addr().Is4In6() {
		bits -= 96
	}
	if !group.IsValid() || bits < group.Bits() {
		return g, false
	}
	return packGroup(group), true
}

func packGroup(p netip.Prefix) (g groupPrefix) {
	if p.Addr().Is4() {
		a := p.Addr().As4()
		g[0] = 4
		copy(g[1:], a[:3])
		return g
	}
	a := p.Addr().As16()
	g[0] = 6
	copy(g[1:], a[:6])
	return g
}
