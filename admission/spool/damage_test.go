package spool

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// fill keeps n deliveries of one repository and closes the spool. It returns
// the disk with one or more log files.
func fill(t *testing.T, n int, segment int64) *memDisk {
	t.Helper()
	disk := newMemDisk()
	c := memConfig(disk)
	c.SegmentBytes = segment
	s := open(t, c)
	for i := range n {
		if _, err := s.Keep(context.Background(), "/hook", memDelivery("a", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return disk
}

// deliveries maps a spool's deliveries to why they are dead.
func deliveries(s *Spool) map[string]string {
	m := map[string]string{}
	for _, it := range s.List(Filter{}) {
		m[it.Delivery] = it.Dead
	}
	return m
}

// TestDamage flips one byte at many places of a file in turn: at most the one
// delivery it belongs to is lost or set aside, it never comes out changed,
// all others stay, somebody is told, and the spool goes on.
func TestDamage(t *testing.T) {
	const n = 5
	for _, newest := range []bool{true, false} {
		for at := 0; ; at += 7 {
			disk := fill(t, n, 1<<20)
			f := disk.file(segmentSuffix, 0)
			if at >= len(f.data) {
				break
			}
			if !newest {
				s := open(t, memConfig(disk))
				if _, err := s.Keep(context.Background(), "/hook", memDelivery("c", 1)); err != nil {
					t.Fatal(err)
				}
				_ = s.Close()
			}
			f.data[at] ^= 0x40
			s := open(t, memConfig(disk))
			sound, told := soundOnes(t, s)
			report := s.Report()
			if sound < n-1 || sound < n && !told && report.Damaged == 0 && report.Torn == 0 {
				t.Fatalf("byte %d: %d of %d left, %v", at, sound, n, report)
			}
			if _, err := s.Keep(context.Background(), "/hook", memDelivery("b", 1)); err != nil {
				t.Fatalf("byte %d: %v", at, err)
			}
			_ = s.Close()
		}
	}
}

// soundOnes counts the deliveries of repository a that come out as they went
// in; told says that another one is listed as damaged or found so on reading.
func soundOnes(t *testing.T, s *Spool) (sound int, told bool) {
	t.Helper()
	for _, it := range s.List(Filter{Repository: "a"}) {
		n, err := strconv.Atoi(strings.TrimPrefix(it.Delivery, "a-"))
		if err != nil {
			t.Fatal(err)
		}
		d, err := s.Show(it.ID, true)
		switch {
		case err == nil && string(d.Body) == testBody("a", n) && it.Dead == "":
			sound++
		case errors.Is(err, ErrCorrupt):
			told = true
		default:
			t.Fatalf("%+v: %v", it, err)
		}
	}
	return sound, told
}

// TestBytesInABodyAreNoRecord: a body that holds a copy of a whole record,
// head and all, in a segment whose head before it is damaged, adds nothing.
func TestBytesInABodyAreNoRecord(t *testing.T) {
	other := newMemDisk()
	s := open(t, memConfig(other))
	if _, err := s.Keep(context.Background(), "/hook", memDelivery("forged", 1)); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	record := other.file(segmentSuffix, 0).data[segmentHeadSize:]

	disk := newMemDisk()
	s = open(t, memConfig(disk))
	d := memDelivery("a", 1)
	d.Body = append([]byte("x"), record...)
	for _, d := range []*Delivery{d, memDelivery("a", 2)} {
		if _, err := s.Keep(context.Background(), "/hook", d); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.Close()
	disk.file(segmentSuffix, 0).data[segmentHeadSize+5] ^= 1
	s = open(t, memConfig(disk))
	if got := deliveries(s); len(got) != 1 || s.Report().Damaged != 1 {
		t.Errorf("%v %v", got, s.Report())
	}
}

// TestTornCopy: when the power fails while what is kept is written again, the
// first record stands, in this start and in later ones.
func TestTornCopy(t *testing.T) {
	disk := fill(t, 3, 1<<20)
	first := disk.file(segmentSuffix, 0)
	h, _ := decodeSegmentHead(first.data)
	copied := segmentHead{version: formatVersion, number: h.number + 1, next: 4, before: h.number, end: int64(len(first.data)), salt: h.salt}
	r, _ := decodeRecordHead(first.data[segmentHeadSize:], &h.salt)
	data := append(copied.encode(), first.data[segmentHeadSize:segmentHeadSize+r.size()]...)
	clear(data[len(data)-20:]) // the end of its body did not get there
	disk.names[segmentName("/spool", copied.number)] = &memFile{data: data}
	for life := range 3 {
		s := open(t, memConfig(disk))
		if sound, _ := soundOnes(t, s); sound != 3 {
			t.Errorf("start %d: %d of 3", life, sound)
		}
		if _, err := s.Keep(context.Background(), "/hook", memDelivery("b", life)); err != nil {
			t.Fatal(err)
		}
		_ = s.Close()
	}
}

// TestDamagedFileIsSetAside: a file with damage is moved aside, not removed,
// once nothing in it is kept any more.
func TestDamagedFileIsSetAside(t *testing.T) {
	disk := fill(t, 3, 1<<20)
	disk.file(segmentSuffix, 0).data[segmentHeadSize+5] ^= 1
	var events recorder
	c := memConfig(disk)
	c.Log = events.put
	s := open(t, c)
	for _, it := range s.List(Filter{}) {
		if err := s.Drop(context.Background(), it.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Keep(context.Background(), "/hook", memDelivery("b", 1)); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	if names, _ := disk.List("/spool/aside"); len(names) != 1 {
		t.Errorf("aside: %v", names)
	}
	kinds := map[EventKind]bool{}
	for _, e := range events.events() {
		kinds[e.Kind] = true
	}
	if !kinds[EventDamage] || !kinds[EventSetAside] {
		t.Errorf("events %v", kinds)
	}
}

// TestDamagedFormatFile: the salt and the version stand in the segments too.
func TestDamagedFormatFile(t *testing.T) {
	disk := fill(t, 3, 1<<20)
	disk.names["/spool/format"].data = []byte("{")
	s := open(t, memConfig(disk))
	if got := deliveries(s); len(got) != 3 {
		t.Errorf("%v", got)
	}
}

// TestUnknownFormat: another version is refused by name and left alone, in
// the format file and in a segment.
func TestUnknownFormat(t *testing.T) {
	for _, where := range []string{"format", "segment"} {
		disk := fill(t, 3, 1<<20)
		if where == "format" {
			disk.names["/spool/format"].data = []byte(`{"format":7,"salt":""}`)
		} else {
			f := disk.file(segmentSuffix, 0)
			h, _ := decodeSegmentHead(f.data)
			h.version = 7
			copy(f.data, h.encode())
		}
		before := disk.ops
		disk.log = nil
		_, err := Open(memConfig(disk))
		var f *FormatError
		if !errors.As(err, &f) || f.Found != 7 || f.Know != formatVersion {
			t.Errorf("%s: %v", where, err)
		}
		for _, op := range disk.log {
			if !strings.HasPrefix(op, "read") && !strings.HasPrefix(op, "open") && !strings.HasPrefix(op, "stat") &&
				!strings.HasPrefix(op, "list") && !strings.HasPrefix(op, "lock") {
				t.Errorf("%s: %s after %d", where, op, before)
			}
		}
		if _, err := OpenReader("/spool", disk); !errors.As(err, &f) {
			t.Errorf("reader, %s: %v", where, err)
		}
	}
}

// TestOneSpoolOneOwner: a second configuration of the same directory is
// refused until the first has closed it.
func TestOneSpoolOneOwner(t *testing.T) {
	c := testConfig(t)
	s := open(t, c)
	var locked *LockedError
	if _, err := Open(c); !errors.As(err, &locked) || !strings.Contains(err.Error(), c.Dir) {
		t.Fatalf("%v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, c)
}

// TestModes: nobody else may read the files.
func TestModes(t *testing.T) {
	c := testConfig(t)
	c.Dir = filepath.Join(c.Dir, "new", "spool")
	s := open(t, c)
	if _, err := s.Keep(context.Background(), "/hook", testDelivery("a", 1)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(c.Dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory %v %v", info.Mode(), err)
	}
	list, err := os.ReadDir(c.Dir)
	if err != nil || len(list) < 4 {
		t.Fatalf("%v %v", list, err)
	}
	for _, e := range list {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s %v %v", e.Name(), info.Mode(), err)
		}
	}
}

// TestReaderBesideAWriter: the files can be read while the gateway is down,
// and while it is up, without its lock.
func TestReaderBesideAWriter(t *testing.T) {
	disk := fill(t, 4, 1<<20)
	s := open(t, memConfig(disk))
	for _, closed := range []bool{false, true} {
		if closed {
			_ = s.Close()
		}
		r, err := OpenReader("/spool", disk)
		if err != nil {
			t.Fatal(err)
		}
		items := r.List(Filter{Hook: "/hook", State: "due"})
		if len(items) != 4 || r.Report().Kept != 4 {
			t.Fatalf("%+v", items)
		}
		var out strings.Builder
		if err := r.Export(&out, Filter{Limit: 2}); err != nil || strings.Count(out.String(), "\n") != 2 {
			t.Errorf("%v %q", err, out.String())
		}
		if d, err := r.Show(items[3].ID, true); err != nil || string(d.Body) != testBody("a", 3) {
			t.Errorf("%+v %v", d, err)
		}
	}
}
