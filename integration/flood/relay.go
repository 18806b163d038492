package flood

import (
	"io"
	"net"
	"sync"
)

// Relay passes connections on from an address of its own, because git cannot be
// told from where to connect.
type Relay struct {
	Addr string // host:port to give to git

	source, target string
	listener       net.Listener
	running        sync.WaitGroup
	mu             sync.Mutex // protects conns
	conns          map[net.Conn]bool
}

// StartRelay relays to target (host:port) from the n-th source.
func StartRelay(target string, n int) (*Relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Relay{Addr: l.Addr().String(), source: Source(n).String(), target: target, listener: l, conns: map[net.Conn]bool{}}
	r.running.Go(r.accept)
	return r, nil
}

// Close ends the relay and every connection through it.
func (r *Relay) Close() {
	_ = r.listener.Close()
	r.mu.Lock()
	for c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
	r.mu.Unlock()
	r.running.Wait()
}

func (r *Relay) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.running.Go(func() { r.pass(c) })
	}
}

func (r *Relay) pass(client net.Conn) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(r.source)}}
	server, err := d.Dial("tcp", r.target)
	if err != nil {
		_ = client.Close()
		return
	}
	if !r.track(client, server) {
		return
	}
	defer r.untrack(client, server)
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.(*net.TCPConn).CloseWrite()
		close(done)
	}()
	_, _ = io.Copy(client, server)
	_ = client.Close() // the server has said everything
	<-done
}

// track remembers two connections, or closes them when the relay is closed.
func (r *Relay) track(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		if r.conns == nil {
			_ = c.Close()
			continue
		}
		r.conns[c] = true
	}
	return r.conns != nil
}

func (r *Relay) untrack(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(r.conns, c)
	}
}
