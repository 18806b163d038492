package identity

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func TestGroupPrefix(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.77":            "192.0.2.0/24",
		"::ffff:192.0.2.77":     "192.0.2.0/24",
		"2001:db8:1:2::3":       "2001:db8:1::/48",
		"fe80::1%eth0":          "fe80::/48",
		"2001:db8:ffff:ffff::1": "2001:db8:ffff::/48",
	} {
		if got := GroupPrefix(netip.MustParseAddr(in)); got != prefix(want) {
			t.Errorf("%s: %v, want %s", in, got, want)
		}
	}
	if GroupPrefix(netip.Addr{}).IsValid() {
		t.Error("no address has a group")
	}
}

func TestRememberGroup(t *testing.T) {
	s := NewStore()
	s.RememberGroup(prefix("192.0.2.0/24"), start)
	s.RememberGroup(prefix("2001:db8:1:2::/64"), start)
	for in, want := range map[string]bool{
		"192.0.2.0/24": true, "192.0.2.9/32": true, "::ffff:192.0.2.0/120": true,
		"2001:db8:1::/48": true, "2001:db8:1:ff::/64": true,
		"192.0.3.0/24": false, "192.0.0.0/16": false, "2001:db8:2::/48": false, "c000:0200::/48": false,
	} {
		if got := s.GroupRemembered(prefix(in), after(GroupKept-time.Second)); got != want {
			t.Errorf("%s: %v", in, got)
		}
		if s.GroupRemembered(prefix(in), after(GroupKept)) {
			t.Errorf("%s: remembered after 30 days", in)
		}
	}
	for _, p := range []netip.Prefix{{}, prefix("0.0.0.0/0"), prefix("10.0.0.0/8"), prefix("2001:db8::/32"), prefix("::ffff:0:0/96")} {
		s.RememberGroup(p, start)
		if s.GroupRemembered(p, start) {
			t.Errorf("%v is remembered", p)
		}
	}
	if v := s.Snapshot(); v.Remembered != (Level{2, 1 << 16}) {
		t.Errorf("%+v", v.Remembered)
	}
}

func TestRememberedGroupsBound(t *testing.T) {
	s := small()
	for i, p := range []string{"10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24", "10.0.0.0/24", "10.0.3.0/24"} {
		s.RememberGroup(prefix(p), after(time.Duration(i)*time.Second))
	}
	for p, want := range map[string]bool{"10.0.0.0/24": true, "10.0.1.0/24": false, "10.0.2.0/24": true, "10.0.3.0/24": true} {
		if s.GroupRemembered(prefix(p), after(time.Minute)) != want {
			t.Errorf("%s: remembered %v", p, !want)
		}
	}
}

func TestGroupChanges(t *testing.T) {
	s := NewStore()
	want := uint64(0)
	for _, x := range []struct {
		after time.Duration
		grows bool
	}{{0, true}, {time.Hour, false}, {25 * time.Hour, true}, {26 * time.Hour, false}} {
		s.RememberGroup(prefix("192.0.2.0/24"), after(x.after))
		if x.grows {
			want++
		}
		if got := s.GroupChanges(); got != want {
			t.Errorf("after %v: %d changes, want %d", x.after, got, want)
		}
	}
}

func TestExportImport(t *testing.T) {
	a := NewStore()
	a.RememberGroup(prefix("192.0.2.0/24"), start)
	a.RememberGroup(prefix("198.51.100.0/24"), after(time.Hour))
	a.RememberGroup(prefix("2001:db8:1::/48"), after(2*time.Hour))
	now := after(3 * time.Hour)
	b := NewStore()
	b.RememberGroup(prefix("203.0.113.0/24"), now)
	b.RememberGroup(prefix("192.0.2.0/24"), now) // later than what is imported
	if err := b.ImportGroups(a.ExportGroups(now), now); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]bool{"192.0.2.0/24": true, "198.51.100.0/24": false, "2001:db8:1::/48": false, "203.0.113.0/24": true} {
		if !b.GroupRemembered(prefix(p), now) {
			t.Errorf("%s is not remembered", p)
		}
		if got := b.GroupRemembered(prefix(p), start.Add(GroupKept+150*time.Minute)); got != want {
			t.Errorf("%s: %v after its 30 days", p, got)
		}
	}
	if !bytes.Equal(a.ExportGroups(now), a.ExportGroups(now)) {
		t.Error("two exports differ")
	}
	if late := a.ExportGroups(start.Add(GroupKept + 90*time.Minute)); len(late) != groupsHead+groupRecord+groupsTail {
		t.Errorf("forgotten networks are exported: %d bytes", len(late))
	}
	if err := NewStore().ImportGroups(NewStore().ExportGroups(now), now); err != nil {
		t.Errorf("an empty list: %v", err)
	}
}

// A clock that was wrong when the list was written makes no network immortal,
// and an old list brings nothing back.
func TestImportTimes(t *testing.T) {
	a, b := NewStore(), NewStore()
	a.RememberGroup(prefix("192.0.2.0/24"), after(1000*24*time.Hour))
	list := a.ExportGroups(after(1000 * 24 * time.Hour))
	if err := b.ImportGroups(list, start); err != nil {
		t.Fatal(err)
	}
	if !b.GroupRemembered(prefix("192.0.2.0/24"), start) || b.GroupRemembered(prefix("192.0.2.0/24"), after(GroupKept)) {
		t.Error("a time to come counts as now")
	}
	c := NewStore()
	if err := c.ImportGroups(list, after(1030*24*time.Hour)); err != nil || c.Snapshot().Remembered.Held != 0 {
		t.Errorf("forgotten networks came back: %v", err)
	}
}

func TestImportBound(t *testing.T) {
	a, b := NewStore(), small()
	for i := range 10 {
		a.RememberGroup(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 24), after(time.Duration(i)*time.Second))
	}
	if err := b.ImportGroups(a.ExportGroups(start), after(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if !b.GroupRemembered(prefix("10.0.7.0/24"), start) || b.GroupRemembered(prefix("10.0.6.0/24"), start) {
		t.Error("the latest three stay")
	}
	checkSums(t, b)
}

func seal(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func TestImportDamaged(t *testing.T) {
	a := NewStore()
	a.RememberGroup(prefix("192.0.2.0/24"), start)
	good := a.ExportGroups(start)
	change := func(i int, v byte) []byte {
		b := bytes.Clone(good[:len(good)-groupsTail])
		b[i] = v
		return seal(b)
	}
	for name, x := range map[string]struct {
		list []byte
		want error
	}{
		"nothing":          {nil, ErrGroupsFormat},
		"another file":     {[]byte("not a list of networks at all"), ErrGroupsFormat},
		"next version":     {change(7, 2), ErrGroupsVersion},
		"torn":             {good[:len(good)-1], ErrGroupsFormat},
		"longer":           {append(bytes.Clone(good), 0), ErrGroupsFormat},
		"count":            {change(11, 2), ErrGroupsFormat},
		"great count":      {change(8, 0xff), ErrGroupsFormat},
		"family":           {change(groupsHead, 5), ErrGroupsFormat},
		"host bits":        {change(groupsHead+6, 1), ErrGroupsFormat},
		"before the epoch": {change(groupsHead+7, 0xff), ErrGroupsFormat},
	} {
		s := NewStore()
		s.RememberGroup(prefix("198.51.100.0/24"), start)
		before := s.ExportGroups(start)
		if err := s.ImportGroups(x.list, start); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
		if !bytes.Equal(s.ExportGroups(start), before) {
			t.Errorf("%s: changed something", name)
		}
	}
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 0x10
		if err := NewStore().ImportGroups(b, start); err == nil {
			t.Errorf("one changed bit in byte %d is not noticed", i)
		}
	}
}

func FuzzImportGroups(f *testing.F) {
	s := NewStore()
	f.Add(s.ExportGroups(start)[:groupsHead])
	s.RememberGroup(prefix("192.0.2.0/24"), start)
	s.RememberGroup(prefix("2001:db8:1::/48"), start)
	f.Add(s.ExportGroups(start))
	good := s.ExportGroups(start)
	f.Add(good[:len(good)-groupsTail])
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, list := range [][]byte{b, seal(bytes.Clone(b))} {
			s := small()
			if s.ImportGroups(list, start) != nil {
				continue
			}
			checkSums(t, s)
			again := small()
			if err := again.ImportGroups(s.ExportGroups(start), start); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again.ExportGroups(start), s.ExportGroups(start)) {
				t.Fatal("an export does not survive its import")
			}
		}
	})
}

// What goes in is remembered for 30 days, across any number of restarts.
func TestRememberedGroupsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewStore()
		now := start
		model := map[netip.Prefix]time.Time{}
		networks := rapid.SampledFrom([]netip.Prefix{
			prefix("10.0.0.0/24"), prefix("10.0.1.0/24"), prefix("2001:db8:a::/48"), prefix("2001:db8:b::/48"),
		})
		t.Repeat(map[string]func(*rapid.T){
			"remember": func(t *rapid.T) {
				p := networks.Draw(t, "network")
				s.RememberGroup(p, now)
				model[p] = now
			},
			"advance": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 20*24*3600).Draw(t, "seconds")) * time.Second)
			},
			"restart": func(t *rapid.T) {
				list := s.ExportGroups(now)
				s = NewStore()
				if err := s.ImportGroups(list, now); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				for _, p := range []string{"10.0.0.0/24", "10.0.1.0/24", "2001:db8:a::/48", "2001:db8:b::/48"} {
					last, ok := model[prefix(p)]
					if want := ok && now.Sub(last) < 30*24*time.Hour; s.GroupRemembered(prefix(p), now) != want {
						t.Fatalf("%s at %v: remembered %v", p, now, !want)
					}
				}
			},
		})
	})
}
