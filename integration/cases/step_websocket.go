package cases

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// socket is one open WebSocket connection of a client.
type socket struct {
	conn     *websocket.Conn
	raw      *http.Transport
	exchange *exchange
}

// Close implements io.Closer.
func (s *socket) Close() error {
	err := s.conn.CloseNow()
	s.raw.CloseIdleConnections()
	return err
}

func (s *socket) abort(string) { s.conn.CloseNow() }

func (b *book) socketsOf(name string) []*socket {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.sockets[name])
}

// webSocket opens the step's connections; they stay open until the case ends.
func (w *world) webSocket(ctx context.Context, s *Step) error {
	if err := w.prove(ctx, s); err != nil {
		return err
	}
	does := behaviour(nil)
	if s.Upstream != "" && s.Upstream != "echo" {
		var err error
		if does, err = parseBehaviour(s.Upstream); err != nil {
			return err
		}
	}
	round := w.book.begin(s.Name)
	defer w.book.end(s.Name)
	_, workers := s.pace()
	if s.Background && s.Concurrency == 0 {
		workers = 1 // the step ends when all are open; they live on by themselves
	}
	slots := make(chan struct{}, workers)
	var group sync.WaitGroup
	var first error
	var mu sync.Mutex
	for i := range s.count() {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if err := w.openSocket(ctx, s, i, round, does); err != nil {
				mu.Lock()
				defer mu.Unlock()
				first = err
			}
		})
	}
	group.Wait()
	return first
}

func (w *world) openSocket(ctx context.Context, s *Step, i, round int, does behaviour) error {
	id := fmt.Sprintf("%s#%d.%d", s.Name, round, i)
	wire, err := w.tokens.build(s, i, id)
	if err != nil {
		return err
	}
	w.ledger.register(&sent{id: id, step: s.Name, round: round, behaviour: does, wire: wire, flow: wire.flow(), at: time.Now()})
	e := newExchange(wire)
	w.book.note(s.Name, e)
	header := http.Header{}
	for _, h := range wire.headers {
		header.Add(h.Name, h.Value)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	transport := &http.Transport{DialContext: dialer(s.Peer, false).DialContext}
	conn, resp, err := websocket.Dial(ctx, "ws://"+w.gateway.plain+wire.target,
		&websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}, HTTPHeader: header, Host: wire.host, CompressionMode: websocket.CompressionDisabled})
	if resp != nil {
		e.head(resp.StatusCode, resp.Proto, resp.Header)
	}
	if err != nil {
		e.finish(err)
		return nil // a refused upgrade is something the case may expect
	}
	e.change(func() { e.upgraded, e.complete = true, true })
	e.finish(nil)
	one := &socket{conn: conn, raw: transport, exchange: e}
	w.book.mu.Lock()
	w.book.sockets[s.Name] = append(w.book.sockets[s.Name], one)
	w.book.mu.Unlock()
	w.book.keep(one)
	if s.ThenSend != "" {
		one.echo(ctx, s.ThenSend)
	}
	return nil
}

// echo sends a message and notes whether it came back.
func (s *socket) echo(ctx context.Context, data string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := s.conn.Write(ctx, websocket.MessageText, []byte(data))
	var answer []byte
	if err == nil {
		_, answer, err = s.conn.Read(ctx)
	}
	good := err == nil && string(answer) == data
	s.exchange.change(func() { s.exchange.alive, s.exchange.echoed = good, good })
}

// webSocketSend sends on the open connections of other steps.
func (w *world) webSocketSend(ctx context.Context, s *Step) error {
	names := s.Names
	if len(names) == 0 {
		return fmt.Errorf("no names")
	}
	for _, name := range names {
		for _, one := range w.book.socketsOf(name) {
			for range max(1, s.N) {
				for _, data := range orDefault(s.Data, "ping") {
					text, err := w.tokens.expand(data, scope{})
					if err != nil {
						return err
					}
					one.echo(ctx, text)
				}
			}
		}
	}
	return nil
}

func orDefault(list Strings, one string) Strings {
	if len(list) == 0 {
		return Strings{one}
	}
	return list
}
