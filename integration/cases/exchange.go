package cases

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// refusedHeader marks the gateway's own refusals.
const refusedHeader = "X-Admission"

// exchange is one request and what came back. The client that runs it writes
// it under mu; the fields are read after done is closed, or under mu.
type exchange struct {
	wire    *wire
	started time.Time
	done    chan struct{}

	mu         sync.Mutex
	launched   bool // the head was sent, or sending it failed
	sent       int64
	taken      int64 // body bytes the peer took from the socket, when metered
	status     int
	info       []int
	proto      string
	header     http.Header
	trailer    http.Header
	headAt     time.Time
	firstByte  time.Time
	firstEvent time.Time
	body       []byte // the first keptBody bytes
	bodyBytes  int64
	complete   bool
	closedBy   string // gateway or client, "" for neither
	err        error
	ended      time.Time
	unfinished bool             // still running when the case was over
	abort      func(how string) // nil until there is a connection

	// WebSocket and git.
	upgraded bool
	alive    bool
	echoed   bool
	exit     int
	stderr   string
	stdout   string
}

// keptBody bounds what is kept of an answer.
const keptBody = 64 << 10

func newExchange(w *wire) *exchange {
	return &exchange{wire: w, started: time.Now(), done: make(chan struct{}), exit: -1}
}

// change writes fields under the lock.
func (e *exchange) change(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

// finish ends the exchange; only the first call counts.
func (e *exchange) finish(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.done:
		return
	default:
	}
	e.launched = true
	if e.err == nil {
		e.err = err
	}
	e.ended = time.Now()
	close(e.done)
}

func (e *exchange) isDone() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

func (e *exchange) wasLaunched() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.launched
}

// refused reports whether the answer is the gateway's own refusal.
func (e *exchange) refused() bool {
	return strings.HasPrefix(e.header.Get(refusedHeader), "refused")
}

// refusal is the value of one key of the gateway's mark, as in
// "refused; class=push; reason=pool_full".
func (e *exchange) refusal(key string) string {
	for _, part := range strings.Split(e.header.Get(refusedHeader), ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if name == key {
			return value
		}
	}
	return ""
}

// took is how long it lasted; a running exchange lasts until now.
func (e *exchange) took() time.Duration {
	if e.ended.IsZero() {
		return time.Since(e.started)
	}
	return e.ended.Sub(e.started)
}

// head notes the final response head.
func (e *exchange) head(status int, proto string, h http.Header) {
	e.change(func() { e.status, e.proto, e.header, e.headAt = status, proto, h, time.Now() })
}

func (e *exchange) answered() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.status != 0
}

// errStopped ends reading that the case wants to stop.
var errStopped = errors.New("the client stopped reading")

// receive reads an answer's body at the client's pace. It returns errStopped
// when the client is to stop reading with more to come.
func (e *exchange) receive(ctx context.Context, body io.Reader) error {
	w := e.wire
	if w.readPause > 0 && !pause(ctx, w.readPause) {
		return ctx.Err()
	}
	size := 32 << 10
	if w.readBPS > 0 {
		size = max(1, int(w.readBPS/20))
	}
	events := strings.HasPrefix(e.header.Get("Content-Type"), "text/event-stream")
	count := 0
	buf := make([]byte, size)
	for {
		if !w.readAll {
			left := w.readLimit - e.bodyBytes
			if left <= 0 {
				return errStopped
			}
			buf = buf[:min(int64(len(buf)), left)]
		}
		n, err := body.Read(buf)
		e.take(buf[:n])
		if events && n > 0 {
			count += e.events(buf[:n])
			if w.follow && count >= 2 {
				return errStopped
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if w.readBPS > 0 && !pause(ctx, time.Duration(float64(n)/w.readBPS*float64(time.Second))) {
			return ctx.Err()
		}
	}
}

func (e *exchange) take(p []byte) {
	e.change(func() {
		if e.bodyBytes == 0 && len(p) > 0 {
			e.firstByte = time.Now()
		}
		e.bodyBytes += int64(len(p))
		if room := keptBody - len(e.body); room > 0 {
			e.body = append(e.body, p[:min(room, len(p))]...)
		}
	})
}

// events counts the ends of events in p and notes the first.
func (e *exchange) events(p []byte) int {
	n := bytes.Count(p, []byte("\n\n"))
	if n > 0 {
		e.change(func() {
			if e.firstEvent.IsZero() {
				e.firstEvent = time.Now()
			}
		})
	}
	return n
}
