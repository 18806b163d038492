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

// run sends for d and returns how many answers came.
func (l load) run(ctx context.Context, d time.Duration) (answers int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var n atomic.Int64
	var first error
	var once sync.Once
	var running sync.WaitGroup
	for i := range l.connections {
		running.Go(func() {
			if err := l.connection(ctx, i, &n); err != nil && ctx.Err() == nil {
				once.Do(func() { first = err })
				cancel()
			}
		})
	}
	running.Wait()
	return n.Load(), first
}

func (l load) connection(ctx context.Context, i int, n *atomic.Int64) error {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: flood.Source(i)}}
	request := []byte("GET " + l.path + " HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: git/2.39.5\r\n\r\n")
	for ctx.Err() == nil {
		conn, err := d.DialContext(ctx, "tcp", l.addr)
		if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		err = l.exchange(conn, request, n)
		stop()
		_ = conn.Close()
		if err != nil {
			return err
		}
	}
	return nil
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
