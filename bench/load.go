package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-admission/gateway/integration/flood"
)

// load is a number of keep-alive connections, each from an address of its own,
// that send one request after the other.
type load struct {
	addr        string
	path        string
	connections int
	status      int // that every answer must have
}

// run connects, sends for d and returns how many answers came in that time.
func (l load) run(ctx context.Context, d time.Duration) (answers int64, err error) {
	conns := make([]net.Conn, l.connections)
	defer func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	for i := range conns {
		if conns[i], err = l.dial(ctx, i); err != nil {
			return 0, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var n atomic.Int64
	var first error
	var once sync.Once
	var running sync.WaitGroup
	for i := range conns {
		running.Go(func() {
			if err := l.connection(ctx, conns[i], i, &n); err != nil && ctx.Err() == nil {
				once.Do(func() { first = err })
				cancel()
			}
		})
	}
	running.Wait()
	return n.Load(), first
}

func (l load) dial(ctx context.Context, i int) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: flood.Source(i)}, Timeout: 20 * time.Second}
	return d.DialContext(ctx, "tcp", l.addr)
}

// connection sends until ctx ends, on a new connection when the server closes
// the old one.
func (l load) connection(ctx context.Context, conn net.Conn, i int, n *atomic.Int64) error {
	request := []byte("GET " + l.path + " HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: git/2.39.5\r\n\r\n")
	for {
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		err := l.exchange(conn, request, n)
		stop()
		_ = conn.Close()
		if err != nil || ctx.Err() != nil {
			return err
		}
		if conn, err = l.dial(context.WithoutCancel(ctx), i); err != nil {
			return err
		}
	}
}

// exchange uses one connection until the server closes it.
func (l load) exchange(conn net.Conn, request []byte, n *atomic.Int64) error {
	in := bufio.NewReader(conn)
	for {
		if _, err := conn.Write(request); err != nil {
			return err
		}
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			return err
		}
		if r.StatusCode != l.status {
			return fmt.Errorf("%s %s: %s, want %d", l.addr, l.path, r.Status, l.status)
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return err
		}
		n.Add(1)
		if r.Close {
			return nil
		}
	}
}
