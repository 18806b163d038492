package cases

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// raw sends bytes as they are written, n times, and reads what comes back as
// HTTP/1.1 answers. Several texts are sent one after another, gap_ms apart.
func (w *world) raw(ctx context.Context, s *Step) error {
	round := w.book.begin(s.Name)
	run := func() error {
		defer w.book.end(s.Name)
		_, workers := s.pace()
		slots := make(chan struct{}, workers)
		var group sync.WaitGroup
		var mu sync.Mutex
		var first error
		for i := range s.count() {
			slots <- struct{}{}
			group.Go(func() {
				defer func() { <-slots }()
				if err := w.rawOne(ctx, s, i, round); err != nil {
					mu.Lock()
					first = err
					mu.Unlock()
				}
			})
		}
		group.Wait()
		return first
	}
	if s.Background {
		go run()
		pause(ctx, 100*time.Millisecond)
		return nil
	}
	return run()
}

func (w *world) rawTexts(s *Step, i int) ([][]byte, error) {
	var texts [][]byte
	list := slices.Clone(s.Data)
	if len(s.Lines) > 0 {
		list = append(list, strings.Join(s.Lines, "\r\n")+"\r\n")
	}
	for _, one := range []string{s.Text, s.Bytes} {
		if one != "" {
			list = append(list, one)
		}
	}
	for _, d := range list {
		text, err := w.tokens.expand(d, scope{i: i})
		if err != nil {
			return nil, err
		}
		texts = append(texts, []byte(text))
	}
	if s.Hex != "" {
		b, err := hex.DecodeString(strings.ReplaceAll(s.Hex, " ", ""))
		if err != nil {
			return nil, err
		}
		texts = append(texts, b)
	}
	if len(texts) == 0 {
		return nil, fmt.Errorf("raw step without data")
	}
	return texts, nil
}

// rawLimit bounds the wait for an answer to raw bytes.
const rawLimit = 15 * time.Second

func (w *world) rawOne(ctx context.Context, s *Step, i, round int) error {
	texts, err := w.rawTexts(s, i)
	if err != nil {
		return err
	}
	does := behaviour(nil)
	if s.Upstream != "" {
		if does, err = parseBehaviour(s.Upstream); err != nil {
			return err
		}
	}
	wire := &wire{id: fmt.Sprintf("%s#%d.%d", s.Name, round, i), readAll: true, peer: s.Peer, declared: -1, then: "stall"}
	method, _, _ := strings.Cut(string(texts[0]), " ")
	wire.method = method
	w.ledger.register(&sent{id: wire.id, step: s.Name, round: round, behaviour: does, wire: wire, at: time.Now()})
	e := newExchange(wire)
	w.book.note(s.Name, e)
	conn, err := dialH1(ctx, w.gateway.plain, wire)
	if err != nil {
		e.finish(err)
		return nil
	}
	defer conn.conn.Close()
	ctx, cancel := context.WithTimeout(ctx, rawLimit)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	e.change(func() { e.abort, e.launched = conn.abort, true })
	go sendRaw(ctx, conn.conn, texts, s)
	_, err = conn.read(ctx, e, &upload{conn: conn.conn, exchange: e, proceed: make(chan struct{})})
	e.finish(err)
	return nil
}

func sendRaw(ctx context.Context, conn *net.TCPConn, texts [][]byte, s *Step) {
	for k, text := range texts {
		if k > 0 && !pause(ctx, millis(s.GapMS)) {
			return
		}
		if _, err := conn.Write(text); err != nil {
			return // the answer says what happened
		}
	}
	switch s.Then {
	case "close":
		conn.Close()
	case "reset":
		conn.SetLinger(0)
		conn.Close()
	case "fin":
		conn.CloseWrite()
	}
}
