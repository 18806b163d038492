package admission

import (
	"hash/maphash"
	"net/netip"
)

// Key is a keyed 64-bit hash of something that identifies a caller: an address
// prefix, a credential, a repository, a placeholder's value. The zero Key means
// absent: no cap and no bucket applies. Keys of one process mean nothing in
// another.
type Key uint64

// Scope says what a Key of a request identifies.
type Scope uint8

// ByCustom0 to ByCustom3 count by operator-chosen placeholders, in the order of
// ClassConfig.CustomMax.
const (
	ByAddress Scope = iota
	ByCredential
	ByRepository
	ByCustom0
	ByCustom1
	ByCustom2
	ByCustom3
	// ByDear is the same key for every request that costs the upstream a clone's
	// work, ByDearRepository that of its repository.
	ByDear
	ByDearRepository
	NumScopes
)

// full is why a cap of the scope refuses.
func (s Scope) full() Reason {
	switch s {
	case ByRepository:
		return ReasonRepositoryFull
	case ByDear, ByDearRepository:
		return ReasonClonesFull
	}
	return ReasonCallerCap
}

// Keyer makes Keys with a random per-process seed, so that callers cannot
// choose values that collide. Make one with NewKeyer; the zero Keyer panics when
// used. Copies agree with each other. Safe for concurrent use, no allocation.
type Keyer struct{ addrs, texts maphash.Seed }

// NewKeyer returns a Keyer with a fresh random seed.
func NewKeyer() Keyer {
	return Keyer{addrs: maphash.MakeSeed(), texts: maphash.MakeSeed()}
}

// Addr keys a caller: an IPv4 address (4-in-6 unmapped) or an IPv6 /64.
// The invalid address has the zero Key.
func (k Keyer) Addr(a netip.Addr) Key { return k.AddrBits(a, 32, 64) }

// Group keys a caller's neighbourhood, the unit of fairness: /24 or /48.
func (k Keyer) Group(a netip.Addr) Key { return k.AddrBits(a, 24, 48) }

// AddrBits keys an address by its first v4 or v6 bits, clamped to what the
// address family has. Zones are ignored.
func (k Keyer) AddrBits(a netip.Addr, v4, v6 int) Key {
	if !a.IsValid() {
		return 0
	}
	a = a.Unmap().WithZone("")
	bits := v6
	if a.Is4() {
		bits = v4
	}
	bits = min(max(bits, 0), a.BitLen())
	p, err := a.Prefix(bits)
	if err != nil {
		return 0
	}
	b := p.Addr().As16()
	var buf [18]byte
	copy(buf[:], b[:])
	buf[16] = byte(bits)
	if a.Is4() {
		buf[17] = 4
	}
	return nonZero(maphash.Bytes(k.addrs, buf[:]))
}

// String keys a text. It equals Bytes of the same bytes and is never zero.
func (k Keyer) String(s string) Key { return nonZero(maphash.String(k.texts, s)) }

// Bytes keys a byte string, which is not kept. It is never zero.
func (k Keyer) Bytes(b []byte) Key { return nonZero(maphash.Bytes(k.texts, b)) }

func nonZero(h uint64) Key {
	if h == 0 {
		return 1
	}
	return Key(h)
}
