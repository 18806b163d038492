package spool

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
)

// The files of a spool are a log of segments. A segment is a header and then
// records one after the other; a record is a head, its facts (JSON) and, for
// a kept delivery, the body. All numbers are little endian.
//
// The sum of a record's head is keyed with the spool's random salt, so that
// bytes inside a body can never be taken for a record when a damaged segment
// is searched for the next sound one.
const (
	formatVersion = 1

	segmentMagic    = "ADMSPOOL"
	segmentHeadSize = 72 // magic 8, version 4, zero 4, number 8, next 8, before 8, its end 8, salt 16, sum 8

	recordMagic    = 0x5ad170c4
	recordHeadSize = 40 // magic 4, kind 1, zero 3, sequence 8, facts 4, body 4, two sums 8, sum 8

	maxFacts = 256 << 10 // bytes of one record's facts
	maxBody  = 64 << 20  // bytes of one delivery's body
)

type recordKind byte

const (
	recordKeep recordKind = 1 + iota // a delivery: facts and body
	recordNote                       // new state of a kept delivery: facts only
	recordDone                       // a kept delivery needs nothing any more
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type salt [16]byte

// segmentHead describes one segment file.
type segmentHead struct {
	version int
	number  uint64
	next    uint64 // no sequence number from here on was used before this segment
	before  uint64 // the segment before it,
	end     int64  // and where that ended: what follows there was never acknowledged
	salt    salt
}

func (h *segmentHead) encode() []byte {
	b := make([]byte, segmentHeadSize)
	copy(b, segmentMagic)
	le := binary.LittleEndian
	le.PutUint32(b[8:], uint32(h.version))
	le.PutUint64(b[16:], h.number)
	le.PutUint64(b[24:], h.next)
	le.PutUint64(b[32:], h.before)
	le.PutUint64(b[40:], uint64(h.end))
	copy(b[48:], h.salt[:])
	sum := sha256.Sum256(b[:64])
	copy(b[64:], sum[:8])
	return b
}

// decodeSegmentHead reports false for anything but a whole segment head of
// whatever version.
func decodeSegmentHead(b []byte) (h segmentHead, ok bool) {
	if len(b) < segmentHeadSize || string(b[:8]) != segmentMagic {
		return h, false
	}
	if sum := sha256.Sum256(b[:64]); !bytes.Equal(sum[:8], b[64:72]) {
		return h, false
	}
	le := binary.LittleEndian
	h.version = int(le.Uint32(b[8:]))
	h.number = le.Uint64(b[16:])
	h.next = le.Uint64(b[24:])
	h.before = le.Uint64(b[32:])
	h.end = int64(le.Uint64(b[40:]))
	copy(h.salt[:], b[48:])
	return h, true
}

// recordHead describes one record.
type recordHead struct {
	kind              recordKind
	seq               uint64
	facts, body       uint32 // lengths
	factsSum, bodySum uint32
}

func (h *recordHead) size() int64 { return recordHeadSize + int64(h.facts) + int64(h.body) }

func newRecordHead(kind recordKind, seq uint64, facts, body []byte) recordHead {
	return recordHead{
		kind: kind, seq: seq,
		facts: uint32(len(facts)), body: uint32(len(body)),
		factsSum: crc32.Checksum(facts, castagnoli),
		bodySum:  crc32.Checksum(body, castagnoli),
	}
}

func (h *recordHead) encode(s *salt) []byte {
	b := make([]byte, recordHeadSize, recordHeadSize+int(h.facts))
	le := binary.LittleEndian
	le.PutUint32(b, recordMagic)
	b[4] = byte(h.kind)
	le.PutUint64(b[8:], h.seq)
	le.PutUint32(b[16:], h.facts)
	le.PutUint32(b[20:], h.body)
	le.PutUint32(b[24:], h.factsSum)
	le.PutUint32(b[28:], h.bodySum)
	sum := headSum(s, b)
	copy(b[32:], sum[:])
	return b
}

func decodeRecordHead(b []byte, s *salt) (h recordHead, ok bool) {
	le := binary.LittleEndian
	if len(b) < recordHeadSize || le.Uint32(b) != recordMagic {
		return h, false
	}
	if sum := headSum(s, b); !bytes.Equal(sum[:], b[32:40]) {
		return h, false
	}
	h = recordHead{
		kind: recordKind(b[4]), seq: le.Uint64(b[8:]),
		facts: le.Uint32(b[16:]), body: le.Uint32(b[20:]),
		factsSum: le.Uint32(b[24:]), bodySum: le.Uint32(b[28:]),
	}
	sound := h.kind >= recordKeep && h.kind <= recordDone && h.seq != 0 &&
		h.facts <= maxFacts && h.body <= maxBody
	return h, sound
}

func headSum(s *salt, b []byte) (sum [8]byte) {
	var in [len(s) + 32]byte
	copy(in[:], s[:])
	copy(in[len(s):], b[:32])
	full := sha256.Sum256(in[:])
	copy(sum[:], full[:])
	return sum
}
