package spool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// segment is one file of the log. The accounting fields are guarded by the
// spool's mutex; the rest never changes.
type segment struct {
	number uint64
	name   string
	salt   salt

	size int64 // bytes of sound and acknowledged data
	live int64 // bytes of records of deliveries still kept here
	bad  int   // damaged regions found: the file is set aside, never removed
}

// region is a damaged stretch of a segment.
type region struct {
	from, to int64
	tail     bool // reaches the end of the file
}

// place is where a record lies.
type place struct {
	seg *segment
	off int64
}

// scan walks the records of a segment file of the given size and calls found
// for each sound one; a record whose facts are sound but whose body is not is
// passed with bodyOK false. Bodies are read only where verify says so. Damaged
// stretches are skipped and returned; scan fails only when reading fails.
func scan(f io.ReaderAt, size int64, s *salt, verify func(*recordHead) bool,
	found func(off int64, h recordHead, facts []byte, bodyOK bool)) ([]region, error) {
	var bad []region
	w := window{f: f, size: size}
	for off := int64(segmentHeadSize); off < size; {
		h, facts, err := w.record(off, s)
		switch {
		case err == nil:
			ok := true
			if h.body > 0 && verify(&h) {
				if ok, err = bodySound(f, off, &h); err != nil {
					return bad, err
				}
			}
			found(off, h, facts, ok)
			off += h.size()
		case errors.Is(err, errTorn):
			return append(bad, region{off, size, true}), nil
		case errors.Is(err, errFacts):
			bad = append(bad, region{off, off + h.size(), off+h.size() == size})
			off += h.size()
		case errors.Is(err, errHead):
			next, err := w.find(off+1, s)
			if err != nil {
				return bad, err
			}
			bad = append(bad, region{off, next, next == size})
			off = next
		default:
			return bad, err
		}
	}
	return bad, nil
}

var (
	errHead  = errors.New("no record head")
	errFacts = errors.New("record facts damaged")
	errTorn  = errors.New("record reaches past the end")
)

// window reads a file in small steps that usually hold a whole head with its
// facts.
type window struct {
	f    io.ReaderAt
	size int64
	buf  []byte
}

const windowSize = 4 << 10

func (w *window) read(off int64, n int) ([]byte, error) {
	if off+int64(n) > w.size {
		n = int(w.size - off)
	}
	if cap(w.buf) < n {
		w.buf = make([]byte, n)
	}
	b := w.buf[:n]
	got, err := w.f.ReadAt(b, off)
	if got == n {
		err = nil
	}
	return b[:got], err
}

// record reads the head and the facts at off; the facts are valid until the
// next call.
func (w *window) record(off int64, s *salt) (recordHead, []byte, error) {
	b, err := w.read(off, windowSize)
	if err != nil {
		return recordHead{}, nil, diskError("read", err)
	}
	h, ok := decodeRecordHead(b, s)
	if !ok {
		return h, nil, errHead
	}
	if off+h.size() > w.size {
		return h, nil, errTorn
	}
	end := recordHeadSize + int(h.facts)
	if end > len(b) {
		if b, err = w.read(off, end); err != nil {
			return h, nil, diskError("read", err)
		}
	}
	facts := b[recordHeadSize:end]
	if crc32.Checksum(facts, castagnoli) != h.factsSum {
		return h, nil, errFacts
	}
	return h, facts, nil
}

// find returns the offset of the next record head at or after off, or the
// file's size.
func (w *window) find(off int64, s *salt) (int64, error) {
	var magic [4]byte
	binary.LittleEndian.PutUint32(magic[:], recordMagic)
	const step = 64 << 10
	for off+recordHeadSize <= w.size {
		b, err := w.read(off, step)
		if err != nil {
			return 0, diskError("read", err)
		}
		for at := 0; ; {
			i := bytes.Index(b[at:], magic[:])
			if i < 0 || at+i+recordHeadSize > len(b) {
				break
			}
			at += i
			if _, ok := decodeRecordHead(b[at:], s); ok {
				return off + int64(at), nil
			}
			at++
		}
		if len(b) < step {
			break
		}
		off += int64(len(b)) - recordHeadSize // a head may straddle two steps
	}
	return w.size, nil
}

// bodySound reads the body of the record at off and compares its sum.
func bodySound(f io.ReaderAt, off int64, h *recordHead) (bool, error) {
	sum := crc32.New(castagnoli)
	r := bodyReader(f, off, h)
	if n, err := io.Copy(sum, r); err != nil {
		return false, diskError("read", err)
	} else if n != int64(h.body) {
		return false, nil
	}
	return sum.Sum32() == h.bodySum, nil
}

func bodyReader(f io.ReaderAt, off int64, h *recordHead) *io.SectionReader {
	return io.NewSectionReader(f, off+recordHeadSize+int64(h.facts), int64(h.body))
}
