package harness

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

// Tap passes TCP connections on to another address and keeps every byte the clients sent. It changes nothing on the way.
type Tap struct {
	Addr   string
	target string
	mu     sync.Mutex // protects conns
	conns  []*lockedBuffer
}

// Recorded is one request found in a recording.
type Recorded struct {
	Connection int // number of the connection it came on, from 0
	*http.Request
	Chunked  bool
	BodySize int64
	Complete bool // the body arrived whole
}

// StartTap starts a tap in front of target.
func StartTap(tb testing.TB, target string) *Tap {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	t := &Tap{Addr: l.Addr().String(), target: target}
	var running sync.WaitGroup
	closing := make(chan struct{})
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { t.pass(c, closing) })
		}
	})
	tb.Cleanup(func() {
		close(closing)
		l.Close()
		running.Wait()
	})
	return t
}

func (t *Tap) pass(client net.Conn, closing <-chan struct{}) {
	defer client.Close()
	server, err := net.Dial("tcp", t.target)
	if err != nil {
		return
	}
	defer server.Close()
	kept := &lockedBuffer{}
	t.mu.Lock()
	t.conns = append(t.conns, kept)
	t.mu.Unlock()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-closing:
			client.Close()
			server.Close()
		case <-done:
		}
	}()
	var up sync.WaitGroup
	up.Go(func() {
		io.Copy(server, io.TeeReader(client, kept))
		server.(*net.TCPConn).CloseWrite()
	})
	io.Copy(client, server)
	client.(*net.TCPConn).CloseWrite()
	client.Close()
	up.Wait()
}

// Requests parses the HTTP/1 requests recorded so far, connection by connection.
func (t *Tap) Requests() []Recorded {
	t.mu.Lock()
	conns := append([]*lockedBuffer(nil), t.conns...)
	t.mu.Unlock()
	var all []Recorded
	for i, c := range conns {
		r := bufio.NewReader(bytes.NewReader([]byte(c.String())))
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				break
			}
			n, err := io.Copy(io.Discard, req.Body)
			all = append(all, Recorded{Connection: i, Request: req, Chunked: len(req.TransferEncoding) > 0, BodySize: n, Complete: !errors.Is(err, io.ErrUnexpectedEOF)})
		}
	}
	return all
}

// Find returns the recorded requests with this method whose path ends in suffix.
func (t *Tap) Find(method, suffix string) []Recorded {
	var found []Recorded
	for _, r := range t.Requests() {
		if r.Method == method && len(r.URL.Path) >= len(suffix) && r.URL.Path[len(r.URL.Path)-len(suffix):] == suffix {
			found = append(found, r)
		}
	}
	return found
}
