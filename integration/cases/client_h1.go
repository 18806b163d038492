package cases

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// h1Conn is one HTTP/1.1 connection; it serves one exchange at a time.
type h1Conn struct {
	conn   *net.TCPConn
	reader *bufio.Reader
	used   bool
}

func dialH1(ctx context.Context, addr string, w *wire) (*h1Conn, error) {
	slow := w.readBPS > 0 || !w.readAll || w.readPause > 0
	conn, err := dialer(w.peer, slow).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	size := 4096
	if slow {
		size = 512
	}
	return &h1Conn{conn: conn.(*net.TCPConn), reader: bufio.NewReaderSize(conn, max(size, 4096))}, nil
}

// do runs one exchange and reports whether the connection can serve another.
func (c *h1Conn) do(ctx context.Context, e *exchange) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	e.change(func() { e.abort = c.abort })
	c.used = true

	up := &upload{conn: c.conn, exchange: e, proceed: make(chan struct{})}
	written := make(chan error, 1)
	go func() { written <- up.run(ctx) }()

	reusable, err := c.read(ctx, e, up)
	if e.wire.then == "" && err == nil {
		cancelWhenLate := time.AfterFunc(2*time.Second, cancel) // an unread rest must not hold the client
		err = errors.Join(err, ignoreAfterAnswer(e, <-written))
		cancelWhenLate.Stop()
	}
	e.finish(err)
	if !reusable || err != nil || ctx.Err() != nil || up.incomplete() {
		cancel()
		c.conn.Close()
		return false
	}
	return true
}

// ignoreAfterAnswer drops a write error that came after the final answer: the
// server may stop listening then.
func ignoreAfterAnswer(e *exchange, err error) error {
	if e.answered() {
		return nil
	}
	return err
}

// abort ends the client's side: a reset, or an end of file with the client
// still listening.
func (c *h1Conn) abort(how string) {
	if how == "fin" {
		c.conn.CloseWrite()
		return
	}
	c.conn.SetLinger(0)
	c.conn.Close()
}

// read takes the informational and the final answer.
func (c *h1Conn) read(ctx context.Context, e *exchange, up *upload) (reusable bool, err error) {
	request := &http.Request{Method: e.wire.method}
	for {
		resp, err := http.ReadResponse(c.reader, request)
		if err != nil {
			c.noteClose(ctx, e, err)
			return false, fmt.Errorf("no answer: %w", err)
		}
		if resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
			e.change(func() { e.info = append(e.info, resp.StatusCode) })
			if resp.StatusCode == http.StatusContinue {
				up.allow()
			}
			continue
		}
		e.head(resp.StatusCode, resp.Proto, resp.Header)
		return c.readBody(ctx, e, up, resp)
	}
}

func (c *h1Conn) readBody(ctx context.Context, e *exchange, up *upload, resp *http.Response) (bool, error) {
	if resp.StatusCode >= 300 {
		up.stop()
	}
	err := e.receive(ctx, resp.Body)
	switch {
	case errors.Is(err, errStopped) && e.wire.follow:
		e.change(func() { e.closedBy = "client" })
		c.conn.Close()
		return false, nil
	case errors.Is(err, errStopped):
		if watchClosed(ctx, c.conn) {
			e.change(func() { e.closedBy = "gateway" })
		}
		return false, nil
	case err != nil:
		c.noteClose(ctx, e, err)
		return false, fmt.Errorf("answer cut: %w", err)
	}
	e.change(func() { e.complete, e.trailer = true, resp.Trailer })
	return !resp.Close && resp.StatusCode != http.StatusSwitchingProtocols, nil
}

// noteClose says who ended the connection.
func (c *h1Conn) noteClose(ctx context.Context, e *exchange, err error) {
	by := "gateway"
	if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		by = "client"
	}
	e.change(func() {
		if e.closedBy == "" {
			e.closedBy = by
		}
	})
}

// requestHead is the request line and the header section.
func requestHead(w *wire) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", w.method, w.target, w.host)
	for _, h := range w.headers {
		fmt.Fprintf(&b, "%s: %s\r\n", h.Name, h.Value)
	}
	if w.chunked {
		b.WriteString("Transfer-Encoding: chunked\r\n")
	} else if w.declared >= 0 {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", w.declared)
	}
	b.WriteString("\r\n")
	return b.String()
}

var errEarlyAnswer = errors.New("answered before the body was sent")

// idle reports whether the server has left the connection open.
func (c *h1Conn) idle() bool {
	if c.reader.Buffered() > 0 {
		return false
	}
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return false
	}
	open := false
	_ = raw.Control(func(fd uintptr) {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		open = err == unix.EAGAIN
	})
	return open
}
