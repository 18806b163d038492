package gate

import (
	"bytes"
	"io"
	"slices"
	"sync"
	"weak"
)

// bodyBuffers hands the memory of large bodies on from one delivery to the
// next, as long as the collector leaves it there. Without it a refused body
// waits for the collector while the next one is read, and the four permits
// together take twice what four bodies need. It holds nothing back: memory
// that nobody uses goes with the next collection. Safe for concurrent use; a
// nil one hands on nothing.
type bodyBuffers struct {
	mu   sync.Mutex
	free []weak.Pointer[bodyBuffer] // at most bodyBuffersMax
}

type bodyBuffer struct{ b []byte }

// bodyBuffersMax is the most permits that webhooks can have.
const bodyBuffersMax = 8

// take returns an empty buffer with room for n bytes.
func (s *bodyBuffers) take(n int64) []byte {
	if s == nil {
		return make([]byte, 0, n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []byte
	s.free = slices.DeleteFunc(s.free, func(w weak.Pointer[bodyBuffer]) bool {
		v := w.Value()
		if v != nil && found == nil && int64(cap(v.b)) >= n {
			found = v.b[:0]
			return true
		}
		return v == nil
	})
	if found == nil {
		return make([]byte, 0, n)
	}
	return found
}

// give takes back a buffer that nobody reads any more.
func (s *bodyBuffers) give(b []byte) {
	if s == nil || cap(b) < hookGrown {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == bodyBuffersMax {
		s.free = slices.Delete(s.free, 0, 1)
	}
	s.free = append(s.free, weak.Make(&bodyBuffer{b[:0]}))
}

// lentBody is a body that can be taken back: once it is, every reader of it
// fails. A transport may still read a body after it returned the answer.
type lentBody struct {
	mu   sync.RWMutex // a read holds it
	body []byte
	back bool
}

func (l *lentBody) open() io.ReadCloser { return &lentReader{of: l, rest: bytes.NewReader(l.body)} }

// takeBack waits for reads that run and ends all later ones.
func (l *lentBody) takeBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.back = true
}

type lentReader struct {
	of   *lentBody
	rest *bytes.Reader
}

// Read does not let go of the body while it copies.
func (r *lentReader) Read(p []byte) (int, error) {
	r.of.mu.RLock()
	defer r.of.mu.RUnlock()
	if r.of.back {
		return 0, io.ErrClosedPipe
	}
	return r.rest.Read(p)
}

func (*lentReader) Close() error { return nil }
