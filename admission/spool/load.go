package spool

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
)

const (
	lockName   = "lock"
	formatName = "format"
)

// OpenReport says what was found in the directory.
type OpenReport struct {
	Kept     int   // deliveries, dead ones included
	Segments int   // log files
	Bytes    int64 // of them
	Damaged  int   // damaged stretches; what they held is not known or set aside as dead
	Torn     int64 // bytes at the end of the newest file that were never acknowledged
}

// format is the content of the format file. The salt stands here as well as
// in every segment, so that no single sector makes a segment unreadable.
type format struct {
	Format int    `json:"format"`
	Salt   string `json:"salt"`
}

// load takes the lock and reads everything into memory.
func (s *Spool) load() (err error) {
	if err := s.makeDir(); err != nil {
		return err
	}
	lock, err := s.disk.Lock(filepath.Join(s.dir, lockName))
	if errors.Is(err, errLocked) {
		return &LockedError{s.dir}
	}
	if err != nil {
		return diskError("lock", err)
	}
	s.unlock = lock.Close
	defer func() {
		if err != nil {
			_ = lock.Close()
		}
	}()
	var known bool
	if s.salt, known, err = readFormat(s.disk, s.dir); err != nil {
		return err
	}
	found, err := readLog(s.disk, s.dir, s.salt)
	if err != nil {
		return err
	}
	if !known {
		if err := s.makeFormat(); err != nil {
			return err
		}
	}
	damaged := false
	if s.sealer, damaged, err = openSealer(s.disk, s.cfg.keyFile(), s.cfg.KeyFile == ""); err != nil {
		return err
	}
	if damaged {
		found.damaged++
	}
	return s.take(found)
}

func (s *Spool) makeDir() error {
	if _, err := s.disk.List(s.dir); err == nil {
		return nil
	}
	if err := s.disk.MkdirAll(s.dir); err != nil {
		return diskError("make directory", err)
	}
	return diskError("sync directory", s.disk.SyncDir(filepath.Dir(s.dir)))
}

// take makes what was read the state of this spool.
func (s *Spool) take(found *contents) error {
	s.log = &segmentLog{disk: s.disk, dir: s.dir, segSize: s.cfg.segmentBytes(), number: found.number, salt: s.salt}
	if n := len(found.segs); n > 0 {
		s.log.before, s.log.ended = found.segs[n-1].number, found.segs[n-1].size
	}
	s.nextSeq = found.next
	s.opened = OpenReport{Segments: len(found.segs), Damaged: found.damaged, Torn: found.torn}
	if err := s.resync(found); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seg := range found.segs {
		if seg.size <= segmentHeadSize && seg.bad == 0 {
			if err := s.disk.Remove(seg.name); err != nil {
				return diskError("remove", err)
			}
			continue
		}
		s.segs = append(s.segs, seg)
		s.opened.Bytes += seg.size
	}
	for _, seq := range slices.Sorted(maps.Keys(found.entries)) {
		e := found.entries[seq]
		s.chargeLocked(e)
		s.insertLocked(e)
		if found.unsound[seq] { // the next start does not check this file's bodies again
			s.noteLocked(e)
		}
	}
	s.opened.Kept = len(s.entries)
	if found.damaged > 0 {
		s.stats.damaged += uint64(found.damaged)
		s.tellLocked(Event{Kind: EventDamage, Count: found.damaged})
	}
	return nil
}

// resync makes durable what was found at the end of the log: a process that
// was killed may not have, and a delivery that is sent again now is taken for
// the one that is there.
func (s *Spool) resync(found *contents) error {
	if len(found.segs) == 0 {
		return nil
	}
	if err := s.disk.SyncFile(found.segs[len(found.segs)-1].name); err != nil {
		return diskError("sync", err)
	}
	return diskError("sync directory", s.disk.SyncDir(s.dir))
}

// readFormat reads the format file. When it is missing or damaged, the salt
// is that of the segments, if there is any, and known is false.
func readFormat(d Disk, dir string) (s salt, known bool, err error) {
	text, err := readSmall(d, filepath.Join(dir, formatName), 1<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return firstSalt(d, dir), false, nil
	}
	if err != nil {
		return s, false, diskError("read format", err)
	}
	var f format
	if json.Unmarshal(text, &f) != nil {
		return firstSalt(d, dir), false, nil
	}
	if f.Format != formatVersion {
		return s, false, &FormatError{dir, f.Format, formatVersion}
	}
	if n, err := hex.Decode(s[:], []byte(f.Salt)); err != nil || n != len(s) {
		return firstSalt(d, dir), false, nil
	}
	return s, true, nil
}

func (s *Spool) makeFormat() error {
	if s.salt == (salt{}) {
		if _, err := rand.Read(s.salt[:]); err != nil {
			return err
		}
	}
	text, err := json.Marshal(format{formatVersion, hex.EncodeToString(s.salt[:])})
	if err != nil {
		return err
	}
	return writeSmall(s.disk, filepath.Join(s.dir, formatName), append(text, '\n'))
}

// firstSalt returns the salt of any readable segment, zero when there is
// none.
func firstSalt(d Disk, dir string) (s salt) {
	names, _ := d.List(dir)
	for _, name := range names {
		if _, ok := segmentNumber(name); !ok {
			continue
		}
		if f, err := d.Open(filepath.Join(dir, name)); err == nil {
			h, ok := readSegmentHead(f)
			_ = f.Close()
			if ok {
				return h.salt
			}
		}
	}
	return s
}

// contents is everything a directory holds.
type contents struct {
	segs    []*segment
	entries map[uint64]*entry
	next    uint64 // the first unused sequence number
	number  uint64 // of the newest segment
	damaged int
	torn    int64
	unsound map[uint64]bool // entries whose body was just found damaged
}

// readLog reads all segments, oldest first, without changing anything.
func readLog(d Disk, dir string, s salt) (*contents, error) {
	names, err := d.List(dir)
	if err != nil {
		return nil, diskError("list", err)
	}
	c := &contents{entries: map[uint64]*entry{}, unsound: map[uint64]bool{}, next: 1}
	for _, name := range names {
		if n, ok := segmentNumber(name); ok {
			c.segs = append(c.segs, &segment{number: n, name: filepath.Join(dir, name), salt: s})
		}
	}
	slices.SortFunc(c.segs, func(a, b *segment) int { return cmp.Compare(a.number, b.number) })
	for i, seg := range c.segs {
		end := int64(-1)
		if i+1 < len(c.segs) {
			end = endBefore(d, c.segs[i+1], seg)
		}
		if err := c.readSegment(d, dir, seg, end, i == len(c.segs)-1); err != nil {
			return nil, err
		}
		c.number = max(c.number, seg.number)
	}
	return c, nil
}

// endBefore returns where seg ended according to the segment after it, -1
// when that does not say.
func endBefore(d Disk, after, seg *segment) int64 {
	f, err := d.Open(after.name)
	if err != nil {
		return -1
	}
	defer f.Close()
	if h, ok := readSegmentHead(f); ok && h.before == seg.number {
		return h.end
	}
	return -1
}

func readSegmentHead(f File) (segmentHead, bool) {
	b := make([]byte, segmentHeadSize)
	n, _ := f.ReadAt(b, 0)
	return decodeSegmentHead(b[:n])
}

// readSegment reads one file up to end (-1 = all). Bodies are checked in the
// newest only, and of records that were written again: those of older files
// were checked when they were newest or will be when used.
func (c *contents) readSegment(d Disk, dir string, seg *segment, end int64, newest bool) error {
	f, err := d.Open(seg.name)
	if err != nil {
		return diskError("open", err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return diskError("read", err)
	}
	if end >= segmentHeadSize && end < size {
		size = end
	}
	h, headOK := readSegmentHead(f)
	if headOK {
		if h.version != formatVersion {
			return &FormatError{dir, h.version, formatVersion}
		}
		seg.salt = h.salt
		c.next = max(c.next, h.next)
	}
	seg.size = segmentHeadSize
	verify := func(h *recordHead) bool { return newest || c.entries[h.seq] != nil }
	bad, err := scan(f, size, &seg.salt, verify, func(off int64, h recordHead, text []byte, ok bool) {
		seg.size = off + h.size()
		c.apply(seg, off, h, text, ok)
	})
	if err != nil {
		return err
	}
	if !newest && end > size {
		seg.bad++ // cut short after it was complete
	}
	c.judge(seg, bad, size, headOK, newest)
	return nil
}

// judge tells a torn end, which no one was promised, from damage.
func (c *contents) judge(seg *segment, bad []region, size int64, headOK, newest bool) {
	for _, r := range bad {
		if newest && r.tail {
			c.torn += r.to - r.from
		} else {
			seg.bad++
		}
	}
	if !headOK && (!newest || seg.size > segmentHeadSize) {
		seg.bad++
	}
	if seg.bad > 0 {
		seg.size = size
	}
	c.damaged += seg.bad
}

// apply takes one sound record.
func (c *contents) apply(seg *segment, off int64, h recordHead, text []byte, bodyOK bool) {
	c.next = max(c.next, h.seq+1)
	e := c.entries[h.seq]
	switch h.kind {
	case recordKeep:
		if e != nil && !bodyOK {
			seg.bad++ // written again, not whole: the first one stands
			return
		}
		var f facts
		if err := json.Unmarshal(text, &f); err != nil {
			seg.bad++
			return
		}
		e = newEntry(h.seq, &f, int64(h.body), h.size())
		e.at = place{seg, off}
		if !bodyOK {
			seg.bad++
			if e.Dead == "" {
				e.Dead, e.DeadAt = string(DeadCorrupt), e.received
				c.unsound[h.seq] = true
			}
		}
		c.entries[h.seq] = e
	case recordNote:
		var st state
		if e != nil && !c.unsound[h.seq] && json.Unmarshal(text, &st) == nil {
			e.state = st
		}
	case recordDone:
		delete(c.entries, h.seq)
	}
}

// String is for logs.
func (r OpenReport) String() string {
	return fmt.Sprintf("%d deliveries in %d files (%d bytes), %d damaged stretches, %d torn bytes",
		r.Kept, r.Segments, r.Bytes, r.Damaged, r.Torn)
}
