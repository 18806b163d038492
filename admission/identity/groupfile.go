package identity

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"slices"
	"time"
)

// The form of the remembered groups outside the process, all numbers
// big-endian:
//
//	6 bytes  "CAGRPS"
//	2 bytes  version, 1
//	4 bytes  number of records
//	n × 15   7 bytes network, 8 bytes Unix seconds of its last proof
//	4 bytes  CRC-32C of everything before it
//
// A network is the byte 4 and the first 3 bytes of the address and 3 zeros, or
// the byte 6 and the first 6 bytes. Records are in order of time, the oldest
// first, and name each network once.
const (
	groupsMagic   = "CAGRPS"
	groupsVersion = 1
	groupsHead    = len(groupsMagic) + 2 + 4
	groupRecord   = 7 + 8
	groupsTail    = 4
	groupsMost    = 1 << 20 // records that an import looks at
)

// Reasons why [Store.ImportGroups] refuses.
var (
	ErrGroupsFormat   = errors.New("not a list of remembered groups")
	ErrGroupsVersion  = errors.New("unknown version of the remembered groups")
	ErrGroupsChecksum = errors.New("the remembered groups are damaged")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type groupTime struct {
	group groupPrefix
	at    int64
}

// ExportGroups returns the remembered groups, at most about 1 MB: networks and
// times, no credential. Networks forgotten by now are left out.
func (s *Store) ExportGroups(now time.Time) []byte {
	list := s.groups.list(now.Unix())
	b := make([]byte, 0, groupsHead+len(list)*groupRecord+groupsTail)
	b = append(b, groupsMagic...)
	b = binary.BigEndian.AppendUint16(b, groupsVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(len(list)))
	for _, x := range list {
		b = append(b, x.group[:]...)
		b = binary.BigEndian.AppendUint64(b, uint64(x.at))
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// ImportGroups adds an exported list to what is remembered; of two times for a
// network the later one stays, a time to come counts as now, and networks
// forgotten by now are left out. On an error (the three above, wrapped)
// nothing changes. A list of more than a million
// networks is refused. Not for use on a request: it sorts all it has.
func (s *Store) ImportGroups(b []byte, now time.Time) error {
	list, err := decodeGroups(b)
	if err != nil {
		return err
	}
	s.groups.merge(list, now.Unix())
	return nil
}

func decodeGroups(b []byte) ([]groupTime, error) {
	if len(b) < groupsHead+groupsTail || string(b[:len(groupsMagic)]) != groupsMagic {
		return nil, ErrGroupsFormat
	}
	if v := binary.BigEndian.Uint16(b[len(groupsMagic):]); v != groupsVersion {
		return nil, fmt.Errorf("%w: %d", ErrGroupsVersion, v)
	}
	records := b[groupsHead : len(b)-groupsTail]
	n := uint64(binary.BigEndian.Uint32(b[groupsHead-4:]))
	if n > groupsMost || uint64(len(records)) != n*uint64(groupRecord) {
		return nil, fmt.Errorf("%w: %d bytes for %d records", ErrGroupsFormat, len(records), n)
	}
	end := len(b) - groupsTail
	if crc32.Checksum(b[:end], castagnoli) != binary.BigEndian.Uint32(b[end:]) {
		return nil, ErrGroupsChecksum
	}
	list := make([]groupTime, 0, n)
	for ; len(records) > 0; records = records[groupRecord:] {
		x := groupTime{groupPrefix(records[:7]), int64(binary.BigEndian.Uint64(records[7:]))}
		if !x.group.valid() || x.at < 0 {
			return nil, fmt.Errorf("%w: record %d", ErrGroupsFormat, len(list))
		}
		list = append(list, x)
	}
	return list, nil
}

func (g groupPrefix) valid() bool {
	switch g[0] {
	case 4:
		return g[4] == 0 && g[5] == 0 && g[6] == 0
	case 6:
		return !netip.AddrFrom16([16]byte{0: g[1], 1: g[2], 2: g[3], 3: g[4], 4: g[5], 5: g[6]}).Is4In6()
	}
	return false
}

// list returns the groups kept at now, oldest first.
func (g *groups) list(now int64) []groupTime {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make([]groupTime, 0, g.table.len())
	for i := g.table.oldest; i != none; i = g.table.entry(i).newer {
		if e := g.table.entry(i); now-e.at < groupKeptSeconds {
			list = append(list, groupTime{e.key, e.at})
		}
	}
	return list
}

// merge builds the table anew from what it holds and list, in order of time.
func (g *groups) merge(list []groupTime, now int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.table
	latest := make(map[groupPrefix]int64, old.len()+len(list))
	for i := old.oldest; i != none; i = old.entry(i).newer {
		latest[old.entry(i).key] = old.entry(i).at
	}
	for _, x := range list {
		at := min(x.at, now)
		if known, ok := latest[x.group]; !ok || known < at {
			latest[x.group] = at
		}
	}
	all := make([]groupTime, 0, len(latest))
	for group, at := range latest {
		if now-at < groupKeptSeconds {
			all = append(all, groupTime{group, at})
		}
	}
	slices.SortFunc(all, func(a, b groupTime) int {
		return cmp.Or(cmp.Compare(a.at, b.at), slices.Compare(a.group[:], b.group[:]))
	})
	all = all[max(0, len(all)-old.max):]
	g.table = newTable[groupPrefix, struct{}](old.max)
	for _, x := range all {
		g.table.put(x.group, x.at)
	}
}
