package gate

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// How fast a small body must come where its class says nothing.
const (
	hookFirstByte = time.Second
	hookMinRate   = 64 << 10 // bytes a second after that
	hookStep      = 4 << 10
	hookGrown     = 1 << 20 // what must have arrived before the whole size is allocated
)

// bodyPace is how large a body may be and how fast it must come.
type bodyPace struct {
	limit int64
	slow  admission.SlowPolicy
}

// by is when the next byte must be there after n of them, the last at last.
func (p bodyPace) by(start, last time.Time, n int, idle time.Duration, rate int64) time.Time {
	if p.slow.BodyIdle > 0 {
		idle = p.slow.BodyIdle
	}
	if p.slow.MinRate > 0 {
		rate = p.slow.MinRate
	}
	by := start.Add(idle + time.Duration(float64(n)/float64(rate)*float64(time.Second)))
	if stall := p.slow.Stall; stall > 0 && last.Add(stall).Before(by) {
		return last.Add(stall)
	}
	return by
}

var errBodyTooLarge = errors.New("request body above its cap")

// readHookBody reads all of r's body at its pace: by default the first byte within
// a second, then at least 64 KiB a second, at most its limit whatever was declared. Memory
// grows with what arrives; from 1 MiB on, the declared size or the limit is
// allocated once. dog's end is honoured. arrived counts as it reads.
//
// The memory of a large body comes from buffers and goes back there when this
// fails; the caller gives it back otherwise.
func readHookBody(w http.ResponseWriter, r *http.Request, dog *watchdog, pace bodyPace, arrived *atomic.Int64, buffers *bodyBuffers) (_ []byte, err error) {
	rc := http.NewResponseController(w)
	start, size := clock(), pace.limit
	if r.ContentLength >= 0 {
		size = min(size, r.ContentLength)
	}
	last := start
	buf := make([]byte, 0, min(size+1, hookStep))
	defer func() {
		if dog.cut() == nil {
			_ = rc.SetReadDeadline(time.Time{})
		}
		if err != nil {
			buffers.give(buf)
		}
	}()
	for {
		if len(buf) == cap(buf) {
			buf = grow(buf, size, buffers)
		}
		by := pace.by(start, last, len(buf), hookFirstByte, hookMinRate)
		_ = rc.SetReadDeadline(by)
		if cause := dog.cut(); cause != nil {
			_ = rc.SetReadDeadline(clock()) // the watchdog's own may just have been overwritten
			return nil, cause
		}
		n, err := r.Body.Read(buf[len(buf):min(int64(cap(buf)), size+1)])
		buf = buf[:len(buf)+n]
		if n > 0 {
			last = clock()
		}
		arrived.Store(int64(len(buf)))
		switch {
		case int64(len(buf)) > pace.limit:
			return nil, errBodyTooLarge
		case err == io.EOF:
			return buf, nil
		case err != nil && dog.cut() != nil:
			return nil, dog.cut()
		case !clock().Before(by):
			return nil, errBodySlow // net/http ends r's context as well
		case err != nil:
			return nil, err
		}
	}
}

// grow makes room for more. One byte beyond size lets a longer body be seen.
func grow(buf []byte, size int64, buffers *bodyBuffers) []byte {
	next := int64(cap(buf)) * 4
	if next > hookGrown {
		next = size + 1
	}
	next = max(min(next, size+1), int64(len(buf))+1)
	if next < hookGrown {
		buffers = nil
	}
	return append(buffers.take(next), buf...)
}

// replayed returns r with the body that was read, as often as a transport asks
// for it. Headers stay as they came, except Expect, which was answered.
func replayed(r *http.Request, body []byte) *http.Request {
	return replayedFrom(r, int64(len(body)), func() io.ReadCloser { return io.NopCloser(bytes.NewReader(body)) })
}

// replayedFrom is replayed with a body of n bytes that open reads from its
// start.
func replayedFrom(r *http.Request, n int64, open func() io.ReadCloser) *http.Request {
	r.Body = open()
	r.GetBody = func() (io.ReadCloser, error) { return open(), nil }
	r.ContentLength, r.TransferEncoding = n, nil
	if r.Header.Get("Expect") != "" {
		r.Header = r.Header.Clone()
		r.Header.Del("Expect")
	}
	return r
}

// queryValues parses a query, nil when it is malformed.
func queryValues(raw string) url.Values {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return nil
	}
	return q
}
