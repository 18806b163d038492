package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/caddy-admission/gateway/integration/flood"
)

// holdHeader makes the upstream keep a request until its client leaves.
const holdHeader = "X-Hold"

// gitPath is what the measured requests ask for: class anonymous, any server.
const gitPath = "/bench.git/objects/info/packs"

// upstream answers three bytes at once.
type upstream struct {
	addr   string
	server *http.Server
	ctx    context.Context
	held   chan chan struct{} // for each request that is kept, what ends it when closed
}

func startUpstream(ctx context.Context) (*upstream, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u := &upstream{addr: l.Addr().String(), ctx: ctx, held: make(chan chan struct{})}
	u.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: u}
	go func() { _ = u.server.Serve(l) }()
	return u, nil
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(holdHeader) == "" {
		_, _ = io.WriteString(w, "ok\n")
		return
	}
	end := make(chan struct{})
	select {
	case u.held <- end:
	case <-r.Context().Done():
		return
	}
	select {
	case <-end: // not every proxy passes on that its client has left
	case <-r.Context().Done():
	case <-u.ctx.Done():
	}
}

// hold takes a place at the system with a request that the upstream keeps, and
// returns once it does. What was measured before may still have the place, so a
// refused request is sent again.
func (u *upstream) hold(ctx context.Context, addr string) (release func(), err error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: flood.Source(59_000)}}
	for range 50 {
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		if _, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: bench.test\r\n%s: 1\r\n\r\n", gitPath, holdHeader); err != nil {
			_ = conn.Close()
			return nil, err
		}
		refused := make(chan struct{})
		go func() { _, _ = conn.Read(make([]byte, 1)); close(refused) }()
		select {
		case end := <-u.held:
			return func() { close(end); _ = conn.Close() }, nil
		case <-refused:
			_ = conn.Close()
			flood.Pause(ctx, 100*time.Millisecond)
		}
	}
	return nil, errors.New("the held request was refused 50 times")
}
