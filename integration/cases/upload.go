package cases

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// upload sends a request's head and body on an HTTP/1.1 connection.
type upload struct {
	conn     *net.TCPConn
	exchange *exchange
	proceed  chan struct{} // closed when a 100 arrived

	allowOnce sync.Once
	stopped   atomic.Bool // a final answer made the rest pointless
	whole     atomic.Bool // everything announced was sent
}

func (u *upload) allow()           { u.allowOnce.Do(func() { close(u.proceed) }) }
func (u *upload) stop()            { u.stopped.Store(true); u.allow() }
func (u *upload) incomplete() bool { return !u.whole.Load() }

func (u *upload) run(ctx context.Context) error {
	w := u.exchange.wire
	_, err := io.WriteString(u.conn, requestHead(w))
	u.exchange.change(func() { u.exchange.launched = true })
	if err != nil {
		return err
	}
	if v, ok := w.headers.Get("Expect"); ok && v == "100-continue" {
		u.await(ctx)
	}
	if err := u.send(ctx, w.body); err != nil {
		return err
	}
	switch w.then {
	case "stall":
		<-ctx.Done()
		return nil
	case "close":
		return u.conn.Close()
	case "reset":
		u.conn.SetLinger(0)
		return u.conn.Close()
	case "fin":
		return u.conn.CloseWrite()
	}
	if w.chunked {
		if _, err := io.WriteString(u.conn, "0\r\n\r\n"); err != nil {
			return err
		}
	}
	u.whole.Store(true)
	return nil
}

// await gives the server a second to invite the body.
func (u *upload) await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	select {
	case <-u.proceed:
	case <-ctx.Done():
	}
}

// send writes the body in pieces: at its rate, and when metered one piece only
// after the peer has read the one before.
func (u *upload) send(ctx context.Context, body []byte) error {
	w := u.exchange.wire
	due := time.Now() // by the rate, whatever the writes and the waits for the peer take
	for len(body) > 0 {
		if u.stopped.Load() {
			return errEarlyAnswer
		}
		piece := body[:min(len(body), u.pieceSize())]
		body = body[len(piece):]
		if err := u.write(piece); err != nil {
			return err
		}
		if w.metered && !u.drained(ctx) {
			return errEarlyAnswer
		}
		if w.rate > 0 && len(body) > 0 {
			due = due.Add(time.Duration(float64(len(piece)) / w.rate * float64(time.Second)))
			if wait := time.Until(due); wait > 0 && !pause(ctx, wait) {
				return ctx.Err()
			}
		}
	}
	return nil
}

func (u *upload) pieceSize() int {
	w := u.exchange.wire
	if w.rate > 0 {
		return max(1, min(256<<10, int(w.rate/20)))
	}
	return 32 << 10
}

func (u *upload) write(piece []byte) error {
	if u.exchange.wire.chunked {
		if _, err := fmt.Fprintf(u.conn, "%x\r\n", len(piece)); err != nil {
			return err
		}
	}
	_, err := u.conn.Write(piece)
	if err == nil && u.exchange.wire.chunked {
		_, err = io.WriteString(u.conn, "\r\n")
	}
	u.exchange.change(func() { u.exchange.sent += int64(len(piece)) })
	return err
}

// drained waits until the peer has read everything sent so far. It reports
// false when an answer or the end of the connection came first.
func (u *upload) drained(ctx context.Context) bool {
	e := u.exchange
	for {
		side, queued := farSide(u.conn), unsent(u.conn)
		if !side.found || side.state != established {
			return false
		}
		left := side.unread + queued
		e.change(func() { e.taken = max(e.taken, e.sent-left) })
		if left == 0 {
			return true
		}
		if u.stopped.Load() || !pause(ctx, 2*time.Millisecond) {
			return false
		}
	}
}
