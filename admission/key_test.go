package admission

import (
	"net/netip"
	"testing"
)

func TestKeysOfAddresses(t *testing.T) {
	k := NewKeyer()
	addr := netip.MustParseAddr
	for _, tc := range []struct {
		a, b string
		key  func(netip.Addr) Key
		same bool
	}{
		{"192.0.2.1", "192.0.2.1", k.Addr, true},
		{"192.0.2.1", "192.0.2.2", k.Addr, false},
		{"192.0.2.1", "::ffff:192.0.2.1", k.Addr, true},
		{"2001:db8:1:2::1", "2001:db8:1:2:ffff::9", k.Addr, true},
		{"2001:db8:1:2::1", "2001:db8:1:3::1", k.Addr, false},
		{"fe80::1%eth0", "fe80::1%eth1", k.Addr, true},
		{"192.0.2.1", "192.0.2.200", k.Group, true},
		{"192.0.2.1", "192.0.3.1", k.Group, false},
		{"2001:db8:1:2::1", "2001:db8:1:ffff::1", k.Group, true},
		{"2001:db8:1:2::1", "2001:db8:2::1", k.Group, false},
		{"192.0.2.0", "::c000:200", k.Addr, false}, // not the mapped form
	} {
		if same := tc.key(addr(tc.a)) == tc.key(addr(tc.b)); same != tc.same {
			t.Errorf("%s and %s: same key %v; want %v", tc.a, tc.b, same, tc.same)
		}
	}
	if k.Addr(netip.Addr{}) != 0 {
		t.Error("no address has a key")
	}
	if k.Addr(addr("192.0.2.0")) == k.Group(addr("192.0.2.0")) {
		t.Error("an address and its group have the same key")
	}
	if k.AddrBits(addr("192.0.2.1"), 99, 0) != k.Addr(addr("192.0.2.1")) || k.AddrBits(addr("192.0.2.1"), -1, 0) == 0 {
		t.Error("prefix lengths are not clamped")
	}
}

func TestKeysOfTexts(t *testing.T) {
	k, other := NewKeyer(), NewKeyer()
	if k.String("a") != k.Bytes([]byte("a")) || k.String("a") == k.String("b") || k.String("") == 0 {
		t.Error("text keys are not what they should be")
	}
	if k.String("a") == other.String("a") {
		t.Error("two processes would share keys")
	}
}
