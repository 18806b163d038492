package gate

import "time"

// reader is one request whose small body is read, and perhaps verified,
// before it has a permit.
type reader struct {
	cut   func(error)
	start time.Time
}

// readersMax bounds them: 16 KiB and a goroutine each. One more ends the one
// that has been at it for longest, so that trickling clients keep nobody out.
const readersMax = 1024

// enterReader admits one more reader; leave must be called once.
func (s *IngressState) enterReader(cut func(error), now time.Time) (leave func()) {
	one := &reader{cut, now}
	var oldest *reader
	s.mu.Lock()
	if len(s.readers) >= readersMax {
		for o := range s.readers {
			if oldest == nil || o.start.Before(oldest.start) {
				oldest = o
			}
		}
		delete(s.readers, oldest)
	}
	s.readers[one] = struct{}{}
	s.mu.Unlock()
	if oldest != nil {
		oldest.cut(errDisplaced)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.readers, one)
	}
}
