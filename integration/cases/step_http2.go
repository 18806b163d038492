package cases

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// http2Flood opens n streams that are reset at once, or sends header blocks
// that never end, below the HTTP library. Each connection counts as one
// exchange: status 0, ended by whom.
func (w *world) http2Flood(ctx context.Context, s *Step) error {
	round := w.book.begin(s.Name)
	defer w.book.end(s.Name)
	connections := max(1, s.Concurrency, s.Connections)
	var group sync.WaitGroup
	errs := make([]error, connections)
	for k := range connections {
		group.Go(func() {
			e := newExchange(&wire{id: fmt.Sprintf("%s#%d.%d", s.Name, round, k), readAll: true})
			w.book.note(s.Name, e)
			errs[k] = w.floodOne(ctx, s, e, k, connections)
		})
	}
	if s.Background {
		pause(ctx, 200*time.Millisecond)
		return nil
	}
	group.Wait()
	return errors.Join(errs...)
}

// floodLimit bounds one flooding connection.
const floodLimit = 30 * time.Second

func (w *world) floodOne(ctx context.Context, s *Step, e *exchange, k, connections int) error {
	ctx, cancel := context.WithTimeout(ctx, floodLimit)
	defer cancel()
	conn, err := w.dialHTTP2(ctx, s)
	if err != nil {
		e.finish(err)
		return nil
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	f := &flood{w: w, s: s, e: e, conn: conn, framer: http2.NewFramer(conn, conn), ended: make(chan struct{})}
	f.encoder = hpack.NewEncoder(&f.block)
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		e.finish(err)
		return nil
	}
	f.framer.WriteSettings() // an error shows at the next write
	go f.drain()
	if s.Op == "h2_continuation_flood" {
		err = f.continuations(ctx)
	} else {
		err = f.resets(ctx, k, connections)
	}
	e.change(func() {
		if err != nil {
			e.closedBy = endedBy(ctx)
		}
	})
	e.finish(err)
	return nil
}

func (w *world) dialHTTP2(ctx context.Context, s *Step) (net.Conn, error) {
	d := dialer(s.Peer, false)
	if s.Proto == "h2" {
		t := &tls.Dialer{NetDialer: d, Config: &tls.Config{InsecureSkipVerify: true, ServerName: tlsName, NextProtos: []string{"h2"}}}
		return t.DialContext(ctx, "tcp", w.gateway.secure)
	}
	return d.DialContext(ctx, "tcp", w.gateway.plain)
}

// flood is one connection below the HTTP library.
type flood struct {
	w       *world
	s       *Step
	e       *exchange
	conn    net.Conn
	framer  *http2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
	ended   chan struct{} // closed when the server has ended the connection
}

// drain reads and forgets what the server sends.
func (f *flood) drain() {
	defer close(f.ended)
	buf := make([]byte, 32<<10)
	for {
		if _, err := f.conn.Read(buf); err != nil {
			return
		}
	}
}

func (f *flood) headers(i int) ([]byte, error) {
	wire, err := f.w.tokens.build(f.s, i, "")
	if err != nil {
		return nil, err
	}
	f.block.Reset()
	scheme := "http"
	if f.s.Proto == "h2" {
		scheme = "https"
	}
	target := wire.target
	if target == "" {
		target = "/"
	}
	for _, h := range append(Headers{{":method", wire.method}, {":scheme", scheme}, {":authority", wire.host}, {":path", target}}, wire.headers...) {
		f.encoder.WriteField(hpack.HeaderField{Name: string(bytes.ToLower([]byte(h.Name))), Value: h.Value})
	}
	return f.block.Bytes(), nil
}

// resets opens streams and resets each at once.
func (f *flood) resets(ctx context.Context, k, connections int) error {
	interval := time.Duration(0)
	if f.s.RatePerS > 0 {
		interval = time.Duration(float64(time.Second) / f.s.RatePerS)
	}
	stream := uint32(1)
	for i := k; i < max(f.s.count(), f.s.Streams); i += connections {
		block, err := f.headers(i)
		if err != nil {
			return err
		}
		err = f.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndStream: true, EndHeaders: true})
		if err == nil {
			err = f.framer.WriteRSTStream(stream, http2.ErrCodeCancel)
		}
		if err != nil {
			return fmt.Errorf("after %s streams: %w", strconv.Itoa(i), err)
		}
		stream += 2
		if interval > 0 && !pause(ctx, interval) {
			return ctx.Err()
		}
	}
	return nil
}

// continuations sends one header block in as many frames as the step says,
// and never ends it.
func (f *flood) continuations(ctx context.Context) error {
	block, err := f.headers(0)
	if err != nil {
		return err
	}
	if err := f.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block}); err != nil {
		return err
	}
	frames := max(f.s.Frames, f.s.count())
	for i := range frames {
		f.block.Reset()
		f.encoder.WriteField(hpack.HeaderField{Name: "x-pad-" + strconv.Itoa(i), Value: filler[:1000], Sensitive: true})
		if err := f.framer.WriteContinuation(1, false, f.block.Bytes()); err != nil {
			return fmt.Errorf("after %d frames: %w", i, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	select {
	case <-f.ended:
		return errors.New("the server ended the connection")
	case <-time.After(floodPatience):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// floodPatience bounds the wait for the server to end an endless header block.
const floodPatience = 5 * time.Second
