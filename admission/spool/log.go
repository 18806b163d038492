package spool

import (
	"fmt"
	"path/filepath"
)

// write is one record on its way to the disk.
type write struct {
	kind  recordKind
	seq   uint64
	facts []byte
	body  []byte

	entry *entry        // of a recordKeep; nil otherwise
	wait  bool          // somebody waits for it to be durable
	at    place         // set when written
	err   error         // set before done is closed
	done  chan struct{} // closed when durable or failed; nil when nobody waits
}

func (w *write) size() int64 { return recordHeadSize + int64(len(w.facts)) + int64(len(w.body)) }

// segmentLog appends to the newest segment. It belongs to the writer
// goroutine; segments' accounting is the spool's.
type segmentLog struct {
	disk    Disk
	dir     string
	segSize int64
	salt    salt

	number uint64 // of the newest segment ever made
	before uint64 // the newest segment that was left,
	ended  int64  // and where its acknowledged data ends
	active File   // nil: the next append makes a segment
	seg    *segment
	end    int64 // bytes of active that are written
	safe   int64 // bytes of active that were synced or need no sync
	dirty  bool  // something written was not synced

	removed bool // a segment was removed since the directory was synced

	loose []*write // written since the last sync without a waiter
	lost  []*write // loose ones that went with an abandoned segment; the spool takes them
}

// append writes the records and, when any of them is waited for, makes all of
// them durable. It either succeeds for all or reports one error for all. A
// segment that saw an error is never written again: what it holds of this
// call is cut off, and the next segment's head says where it ended. Only when
// both fail before the next start may a delivery be found that was refused.
//
// fresh is the segment that was begun, if one was.
func (l *segmentLog) append(ws []*write, next uint64) (fresh *segment, err error) {
	if l.active != nil && l.end >= l.segSize {
		if err := l.finish(); err != nil {
			return nil, err
		}
	}
	if l.active == nil {
		if err := l.begin(next); err != nil {
			return nil, err
		}
		fresh = l.seg
	}
	sync := fresh != nil
	for _, w := range ws {
		sync = sync || w.wait
		if err := l.put(w); err != nil {
			l.abandon()
			return nil, err
		}
	}
	if !sync {
		l.dirty = true
		l.loose = append(l.loose, ws...)
		return fresh, nil
	}
	if err := l.flush(); err != nil {
		return nil, err
	}
	if err := l.syncDir(fresh != nil); err != nil {
		l.safe = 0 // the file itself may not be found again
		l.abandon()
		return nil, err
	}
	return fresh, nil
}

// syncDir makes creations and removals durable, when there were any.
func (l *segmentLog) syncDir(needed bool) error {
	if !needed {
		return nil
	}
	if err := l.disk.SyncDir(l.dir); err != nil {
		return diskError("sync directory", err)
	}
	l.removed = false
	return nil
}

// begin makes the next segment file.
func (l *segmentLog) begin(next uint64) error {
	h := segmentHead{version: formatVersion, number: l.number + 1, next: next, before: l.before, end: l.ended, salt: l.salt}
	name := segmentName(l.dir, h.number)
	f, err := l.disk.Create(name)
	if err != nil {
		return diskError("create", err)
	}
	l.number = h.number
	if _, err := f.WriteAt(h.encode(), 0); err != nil {
		_ = f.Close()
		_ = l.disk.Remove(name)
		return diskError("write", err)
	}
	l.active = f
	l.seg = &segment{number: h.number, name: name, salt: h.salt, size: segmentHeadSize}
	l.end, l.safe, l.dirty = segmentHeadSize, 0, true
	return nil
}

// put writes one record behind the last.
func (l *segmentLog) put(w *write) error {
	h := newRecordHead(w.kind, w.seq, w.facts, w.body)
	b := append(h.encode(&l.seg.salt), w.facts...)
	if len(w.body) <= joinBody {
		b = append(b, w.body...)
	}
	if _, err := l.active.WriteAt(b, l.end); err != nil {
		return diskError("write", err)
	}
	if len(w.body) > joinBody {
		if _, err := l.active.WriteAt(w.body, l.end+int64(len(b))); err != nil {
			return diskError("write", err)
		}
	}
	w.at = place{l.seg, l.end}
	l.end += w.size()
	return nil
}

// joinBody is the size up to which a body is copied behind its head to save a
// system call.
const joinBody = 64 << 10

// flush makes everything written durable.
func (l *segmentLog) flush() error {
	if l.active == nil || !l.dirty && l.safe == l.end {
		return nil
	}
	if err := l.active.Sync(); err != nil {
		l.abandon()
		return diskError("sync", err)
	}
	l.safe, l.dirty, l.loose = l.end, false, nil
	return nil
}

// finish syncs and leaves the active segment.
func (l *segmentLog) finish() error {
	if l.active == nil {
		return nil
	}
	if err := l.flush(); err != nil {
		return err
	}
	err := l.active.Close()
	l.before, l.ended = l.seg.number, l.end
	l.active, l.seg = nil, nil
	return diskError("close", err)
}

// abandon leaves a segment that saw an error. After a failed write or sync
// nothing is known about the bytes since the last good sync, and asking again
// would not tell.
func (l *segmentLog) abandon() {
	if l.safe == 0 {
		_ = l.active.Close()
		if l.disk.Remove(l.seg.name) != nil {
			l.before, l.ended = l.seg.number, segmentHeadSize
		}
	} else {
		_ = l.active.Truncate(l.safe)
		_ = l.active.Close()
		l.before, l.ended = l.seg.number, l.safe
	}
	l.active, l.seg, l.dirty = nil, nil, false
	l.lost, l.loose = append(l.lost, l.loose...), nil
}

const segmentSuffix = ".log"

func segmentName(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%016x%s", number, segmentSuffix))
}

// segmentNumber is the reverse of segmentName for a bare file name.
func segmentNumber(name string) (n uint64, ok bool) {
	if len(name) != 16+len(segmentSuffix) || name[16:] != segmentSuffix {
		return 0, false
	}
	for _, c := range []byte(name[:16]) {
		switch {
		case '0' <= c && c <= '9':
			n = n<<4 | uint64(c-'0')
		case 'a' <= c && c <= 'f':
			n = n<<4 | uint64(c-'a'+10)
		default:
			return 0, false
		}
	}
	return n, n != 0
}
