package identity

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"
)

// Digest is HMAC-SHA-256 under a key that lives and dies with the [Store],
// cut to 16 bytes. The zero Digest means "nothing"; no input has it. Digests
// of different stores, and of different kinds of input, never compare.
type Digest [16]byte

// Zero reports whether d stands for nothing.
func (d Digest) Zero() bool { return d == Digest{} }

// Kinds of input. They separate the digests of equal bytes in different roles.
const (
	kindSecret byte = iota + 1
	kindUser
	kindRest
	kindTarget
	kindAnswer
	kindRefs
	kindSession
	kindAccount
)

// hashers hands out hashers that share one random key. Safe for concurrent
// use; a hasher in use belongs to one goroutine.
type hashers struct{ pool sync.Pool }

func newHashers() *hashers {
	key := make([]byte, sha256.Size)
	rand.Read(key) // never fails: see crypto/rand
	h := new(hashers)
	h.pool.New = func() any { return &hasher{mac: hmac.New(sha256.New, key)} }
	return h
}

func (h *hashers) get(kind byte) *hasher {
	x := h.pool.Get().(*hasher)
	x.begin(kind)
	return x
}

func (h *hashers) put(x *hasher) {
	clear(x.text[:x.used])
	clear(x.buf[:])
	clear(x.sum[:])
	x.used, x.n = 0, 0
	h.pool.Put(x)
}

// hasher computes one digest. Its buffers exist so that hashing a string does
// not allocate; they are wiped before the hasher is pooled again.
type hasher struct {
	mac  hash.Hash
	n    int // bytes waiting in buf
	used int // bytes of text to wipe
	buf  [512]byte
	sum  [sha256.Size]byte
	text [2 * maxAuthorization]byte // decoded and encoded again
}

// begin starts a new digest.
func (x *hasher) begin(kind byte) {
	x.mac.Reset()
	x.buf[0] = kind
	x.n = 1
}

// add appends one field, framed by its length so that ("a","bc") and
// ("ab","c") differ.
func (x *hasher) add(field string) {
	x.frame(len(field))
	for len(field) > 0 {
		field = field[x.copied(copy(x.buf[x.n:], field)):]
	}
}

// addBytes is add for bytes.
func (x *hasher) addBytes(field []byte) {
	x.frame(len(field))
	for len(field) > 0 {
		field = field[x.copied(copy(x.buf[x.n:], field)):]
	}
}

func (x *hasher) frame(n int) {
	if len(x.buf)-x.n < 8 {
		x.flush()
	}
	binary.BigEndian.PutUint64(x.buf[x.n:], uint64(n))
	x.n += 8
}

func (x *hasher) copied(n int) int {
	if x.n += n; x.n == len(x.buf) {
		x.flush()
	}
	return n
}

func (x *hasher) flush() {
	x.mac.Write(x.buf[:x.n])
	x.n = 0
}

// digest ends the computation.
func (x *hasher) digest() (d Digest) {
	x.flush()
	copy(d[:], x.mac.Sum(x.sum[:0]))
	if d.Zero() {
		d[0] = 1
	}
	return d
}
