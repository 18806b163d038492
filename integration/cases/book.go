package cases

import (
	"io"
	"sync"
	"time"
)

// book keeps what the steps of a case did, by step name.
type book struct {
	mu        sync.Mutex
	exchanges map[string][]*exchange
	rounds    map[string]int // how often a step was started
	windows   map[string]*window
	snapshots map[string]snapshot
	outputs   map[string]output
	classes   []classified
	sockets   map[string][]*socket
	clients   map[string]*muxClient
	closers   []io.Closer
	order     []string // names in the order of their first start
}

// window is the time a step took.
type window struct{ from, to time.Time }

// output is what a command of the operator printed.
type output struct {
	text string
	err  error
}

// classified is one line of a classify table and what was seen.
type classified struct{ method, target, want, got string }

func newBook() *book {
	return &book{exchanges: map[string][]*exchange{}, rounds: map[string]int{}, windows: map[string]*window{},
		snapshots: map[string]snapshot{}, outputs: map[string]output{}, sockets: map[string][]*socket{}, clients: map[string]*muxClient{}}
}

// begin starts a round of a step and returns its number, from 0.
func (b *book) begin(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	round := b.rounds[name]
	b.rounds[name]++
	if w := b.windows[name]; w == nil {
		b.windows[name] = &window{from: time.Now()}
		b.order = append(b.order, name)
	}
	return round
}

func (b *book) end(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.windows[name]; w != nil {
		w.to = time.Now()
	}
}

func (b *book) note(name string, e *exchange) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.exchanges[name] = append(b.exchanges[name], e)
}

func (b *book) of(name string) []*exchange {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*exchange(nil), b.exchanges[name]...)
}

func (b *book) all() (list []*exchange) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range b.order {
		list = append(list, b.exchanges[name]...)
	}
	return list
}

func (b *book) roundsOf() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[string]int{}
	for k, v := range b.rounds {
		out[k] = v
	}
	return out
}

func (b *book) snap(name string, s snapshot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, taken := b.snapshots[name]; !taken || name != beforeRelease {
		b.snapshots[name] = s
	}
}

func (b *book) print(name string, o output) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outputs[name] = o
}

// keep closes c at the end of the case.
func (b *book) keep(c io.Closer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closers = append(b.closers, c)
}

func (b *book) closeConnections() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.closers {
		c.Close()
	}
}

// beforeRelease is the moment before the first release.
const beforeRelease = "before_release"

// mux returns the client of a step, made at its first use.
func (b *book) mux(name string, dial func() (*muxClient, error)) (*muxClient, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.clients[name]; c != nil {
		return c, nil
	}
	c, err := dial()
	if err != nil {
		return nil, err
	}
	b.clients[name] = c
	b.closers = append(b.closers, closer(c.close))
	return c, nil
}

// closer makes an io.Closer of a function.
type closer func()

// Close implements io.Closer.
func (c closer) Close() error { c(); return nil }
