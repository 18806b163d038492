package cases

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// batch is one round of a request step.
type batch struct {
	w     *world
	s     *Step
	round int
	does  behaviour

	mu   sync.Mutex
	list []*exchange
	err  error
	done chan struct{}
}

// count is how many requests a step makes: n, or one for each listed variant.
func (s *Step) count() int {
	if s.N > 0 {
		return s.N
	}
	return max(1, len(s.PathEach), len(s.HeadersEach))
}

func (w *world) request(ctx context.Context, s *Step, outer bool) error {
	if err := w.prove(ctx, s); err != nil {
		return err
	}
	b, err := w.launch(s)
	if err != nil {
		return err
	}
	if s.Background {
		b.settle(ctx, outer)
		return nil
	}
	limit := 90*time.Second + time.Duration(s.count())*20*time.Millisecond
	select {
	case <-b.done:
		return b.err
	case <-time.After(limit):
		return fmt.Errorf("still running after %v", limit)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// launch starts the requests of a step at its pace.
func (w *world) launch(s *Step) (*batch, error) {
	b := &batch{w: w, s: s, round: w.book.begin(s.Name), done: make(chan struct{})}
	if s.Upstream != "" {
		var err error
		if b.does, err = parseBehaviour(s.Upstream); err != nil {
			return nil, err
		}
	}
	go func() {
		defer close(b.done)
		b.run()
		w.book.end(s.Name)
	}()
	return b, nil
}

// pace is the time between two starts and how many run at once, 0 for all.
func (s *Step) pace() (interval time.Duration, workers int) {
	n := s.count()
	switch {
	case s.RatePerS > 0:
		interval = time.Duration(float64(time.Second) / s.RatePerS)
	case s.OverMS > 0:
		interval = millis(s.OverMS) / time.Duration(n)
	case s.GapMS > 0 && (s.Background || s.Concurrency > 1):
		interval = millis(s.GapMS)
	}
	switch {
	case s.OneConnection:
		workers = 1
	case s.Concurrency > 0:
		workers = s.Concurrency
	case s.Background || interval > 0:
		workers = n
	default:
		workers = 1
	}
	return interval, min(workers, n)
}

func (b *batch) run() {
	interval, workers := b.s.pace()
	next := make(chan int)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() { b.work(next) })
	}
	began := time.Now()
	for i := range b.s.count() {
		if interval > 0 && !pause(b.w.clients, time.Until(began.Add(time.Duration(i)*interval))) {
			break
		}
		select {
		case next <- i:
		case <-b.w.clients.Done():
		}
	}
	close(next)
	group.Wait()
}

// work is one client: it sends one request after another, on one connection
// where the protocol allows it.
func (b *batch) work(next <-chan int) {
	var send func(*exchange)
	if b.s.Proto == "" || b.s.Proto == "h1" {
		var conn *h1Conn
		defer func() {
			if conn != nil {
				conn.conn.Close()
			}
		}()
		send = func(e *exchange) { conn = b.h1(conn, e) }
	} else {
		client, err := b.mux()
		if err != nil {
			b.fail(err)
			for range next {
			}
			return
		}
		send = func(e *exchange) { client.do(b.w.clients, e) }
	}
	for i := range next {
		e, err := b.prepare(i)
		if err != nil {
			b.fail(err)
			continue
		}
		send(e)
		if b.s.GapMS > 0 && !b.s.Background && b.s.Concurrency <= 1 {
			pause(b.w.clients, millis(b.s.GapMS))
		}
	}
}

func (b *batch) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
}

// prepare builds request i and registers it before it is sent.
func (b *batch) prepare(i int) (*exchange, error) {
	id := b.s.Name + "#" + strconv.Itoa(b.round) + "." + strconv.Itoa(i)
	wire, err := b.w.tokens.build(b.s, i, id)
	if err != nil {
		return nil, err
	}
	wire.metered = b.w.measures(b.s)
	wire.follow = !b.s.Background && (b.does.streams() || b.w.streamsByDefault())
	if b.s.Proto == "h2" || b.s.Proto == "h3" {
		if wire.host == b.w.tokens.gateway {
			wire.host = tlsName + ":" + port(b.w.gateway.secure)
		}
	}
	b.w.ledger.register(&sent{id: id, step: b.s.Name, round: b.round, behaviour: b.does, wire: wire, flow: wire.flow(), at: time.Now()})
	e := newExchange(wire)
	b.mu.Lock()
	b.list = append(b.list, e)
	b.mu.Unlock()
	b.w.book.note(b.s.Name, e)
	return e, nil
}

// measures reports whether the bytes that the gateway takes matter.
func (w *world) measures(s *Step) bool {
	return w.c.Expect.Responses[s.Name].BodyReadMax != nil || (w.c.Expect.Limits != nil && w.c.Expect.Limits.BytesReadOnRefusalMax != nil)
}

func (w *world) streamsByDefault() bool {
	for _, u := range w.ups {
		u.mu.Lock()
		streams := u.normal.streams()
		u.mu.Unlock()
		if streams {
			return true
		}
	}
	return false
}

// h1 sends on conn or on a new connection, and returns one that can be used
// again, or nil.
func (b *batch) h1(conn *h1Conn, e *exchange) *h1Conn {
	ctx := b.w.clients
	if conn != nil && conn.idle() {
		if conn.do(ctx, e) {
			return conn
		}
		return nil
	}
	conn, err := dialH1(ctx, b.w.gateway.plain, e.wire)
	if err != nil {
		e.finish(err)
		return nil
	}
	if conn.do(ctx, e) {
		return conn
	}
	return nil
}

// mux returns the step's shared HTTP/2 or HTTP/3 client.
func (b *batch) mux() (*muxClient, error) {
	return b.w.book.mux(b.s.Name, func() (*muxClient, error) {
		return newMuxClient(b.s.Proto, b.w.gateway.plain, b.w.gateway.secure, b.s.Peer)
	})
}

// settleLimit bounds the wait for a background step to get going.
const settleLimit = 800 * time.Millisecond

// settle returns when every request of a background step has reached an
// upstream or ended; inside a loop already when it was sent.
func (b *batch) settle(ctx context.Context, outer bool) {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	interval, _ := b.s.pace()
	for !b.settled(outer, interval > 0) && pause(ctx, 2*time.Millisecond) {
	}
}

func (b *batch) settled(outer, paced bool) bool {
	b.mu.Lock()
	list := append([]*exchange(nil), b.list...)
	b.mu.Unlock()
	if len(list) < b.s.count() && !paced || len(list) == 0 {
		return false
	}
	for _, e := range list {
		if !outer && !e.wasLaunched() || outer && !e.isDone() && !b.w.ledger.arrived(e.wire.id) {
			return false
		}
	}
	return true
}

// provePath asks for a credential on every forge.
const provePath = "/o/r.git/info/refs?service=git-receive-pack"

// prove makes one accepted request with each credential of a step.
func (w *world) prove(ctx context.Context, s *Step) error {
	if !s.Proven {
		return nil
	}
	seen := map[string]bool{}
	for i := range s.count() {
		wire, err := w.tokens.build(s, i, "")
		if err != nil {
			return err
		}
		get := func(name string) string { v, _ := wire.headers.Get(name); return v }
		credential := credentialOf(get)
		from := get("X-Forwarded-For")
		if credential == "" {
			return fmt.Errorf("proven, but the request carries no credential")
		}
		if seen[credential+from] {
			continue
		}
		seen[credential+from] = true
		w.ledger.accept(credential)
		if err := w.proveOne(ctx, wire); err != nil {
			return err
		}
	}
	return nil
}

// proveTries bounds the attempts to get the accepted request through.
const proveTries = 10

func (w *world) proveOne(ctx context.Context, like *wire) error {
	last := ""
	for range proveTries {
		p := &wire{method: http.MethodGet, target: provePath, host: like.host, peer: like.peer, declared: -1, readAll: true}
		for _, name := range []string{"Authorization", "Private-Token", "Cookie", "X-Forwarded-For"} {
			if v, ok := like.headers.Get(name); ok {
				p.headers = append(p.headers, Header{name, v})
			}
		}
		e := newExchange(p)
		(&batch{w: w}).h1(nil, e)
		if e.status == http.StatusOK {
			return nil
		}
		last = fmt.Sprintf("status %d %s %v", e.status, e.header.Get(refusedHeader), e.err)
		if !pause(ctx, 300*time.Millisecond) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("the credential could not be proven: %s", last)
}

// obeyRetryAfter waits as long as the last refusal of another step said and
// then sends the request.
func (w *world) obeyRetryAfter(ctx context.Context, s *Step) error {
	seconds := -1
	for _, e := range w.book.of(s.Of) {
		if v := e.header.Get("Retry-After"); e.isDone() && v != "" {
			n, err := strconv.Atoi(v)
			if err != nil || n < 0 {
				return fmt.Errorf("Retry-After %q is no whole number of seconds", v)
			}
			seconds = n
		}
	}
	if seconds < 0 {
		return fmt.Errorf("no answer of step %s has Retry-After", s.Of)
	}
	if !pause(ctx, time.Duration(seconds)*time.Second) {
		return ctx.Err()
	}
	return w.request(ctx, s, true)
}
