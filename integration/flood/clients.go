package flood

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Source returns the n-th loopback address from which a driver connects; the
// first is 127.1.0.1. Addresses of one /24 are never given to two of the first
// 60,000 numbers, so that each is a group of its own.
func Source(n int) net.IP {
	n %= 60_000
	return net.IPv4(127, byte(1+n/250), byte(n%250), 1)
}

// Neighbour returns the n-th address of one network: all of them are one group.
func Neighbour(n int) net.IP { return net.IPv4(127, 250, 0, byte(1+n%250)) }

// Only returns a function that gives every client the same address.
func Only(ip net.IP) func(int) net.IP { return func(int) net.IP { return ip } }

// Answer is how one request of a driver ended.
type Answer struct {
	Status int // 0: no answer
	Bytes  int64
	Took   time.Duration
	Retry  string // Retry-After
	Text   string // the start of a refusal
}

// Driver is one kind of client.
type Driver func(ctx context.Context, c *Client) []Answer

// Client talks HTTP/1.1 from one source address over connections of its own.
type Client struct {
	Source net.IP
	Addr   string // host:port of the target
	Host   string // Host header; empty: Addr
	Rate   int    // bytes per second it reads at most; 0: as fast as it can
	Number int
	dial   net.Dialer
	conn   net.Conn
	rd     *bufio.Reader
}

// Close ends the client's connection.
func (c *Client) Close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// Send writes one request and reads its answer, keeping the connection for the
// next one when the server does.
func (c *Client) Send(ctx context.Context, method, path, header, body string) Answer {
	start, a := time.Now(), Answer{}
	if c.conn == nil {
		c.dial.LocalAddr = &net.TCPAddr{IP: c.Source}
		conn, err := c.dial.DialContext(ctx, "tcp", c.Addr)
		if err != nil {
			return Answer{Took: time.Since(start)}
		}
		if c.Rate > 0 {
			_ = conn.(*net.TCPConn).SetReadBuffer(slowBuffer)
		}
		c.conn, c.rd = conn, bufio.NewReader(conn)
	}
	conn, host := c.conn, c.Host
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if host == "" {
		host = c.Addr
	}
	_, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: git/2.39.5\r\n%s\r\n%s", method, path, host, header, body)
	if err == nil {
		err = c.read(&a, method)
	}
	if err != nil {
		c.Close()
	}
	a.Took = time.Since(start)
	return a
}

func (c *Client) read(a *Answer, method string) error {
	r, err := http.ReadResponse(c.rd, &http.Request{Method: method})
	if err != nil {
		return err
	}
	defer r.Body.Close()
	a.Status, a.Retry = r.StatusCode, r.Header.Get("Retry-After")
	if r.StatusCode >= 400 {
		b, err := io.ReadAll(io.LimitReader(r.Body, 500))
		a.Text, a.Bytes = strings.TrimSpace(string(b)), int64(len(b))
		if r.Close {
			c.Close()
		}
		return err
	}
	a.Bytes, err = io.Copy(io.Discard, c.throttled(r.Body))
	if r.Close {
		c.Close()
	}
	return err
}

// throttled reads at the client's rate: what comes in is paid for in time.
func (c *Client) throttled(r io.Reader) io.Reader {
	if c.Rate == 0 {
		return r
	}
	return &slowReader{r: r, rate: c.Rate}
}

// slowBuffer is the receive buffer of a client with a rate, so that the kernel
// does not read on for it.
const slowBuffer = 32 << 10

type slowReader struct {
	r    io.Reader
	rate int
}

func (s *slowReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p[:min(len(p), 16<<10)])
	time.Sleep(time.Duration(n) * time.Second / time.Duration(s.rate)) // the client's line, not a wait
	return n, err
}

// Result counts the answers of a flood.
type Result struct {
	mu       sync.Mutex
	Statuses map[int]int
	Bytes    int64
	Times    []time.Duration // of complete 200s
	Retry    int             // refusals with Retry-After
	started  atomic.Int64
}

func (r *Result) add(answers []Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range answers {
		r.Statuses[a.Status]++
		r.Bytes += a.Bytes
		if a.Retry != "" {
			r.Retry++
		}
	}
	if n := len(answers); n > 0 && answers[n-1].Status == http.StatusOK && len(r.Times) < 100_000 {
		r.Times = append(r.Times, answers[n-1].Took)
	}
}

// Served counts runs of a driver whose last answer was a 200.
func (r *Result) Served() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.Times)
}

// Refused counts answers 429 and 503.
func (r *Result) Refused() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Statuses[http.StatusTooManyRequests] + r.Statuses[http.StatusServiceUnavailable]
}

// Runs counts runs of the driver that have begun.
func (r *Result) Runs() int { return int(r.started.Load()) }

// Answers counts requests, with or without an answer.
func (r *Result) Answers() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, c := range r.Statuses {
		n += c
	}
	return n
}

// Count returns how many answers had that status; 0 counts those without one.
func (r *Result) Count(status int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Statuses[status]
}

// Flood is a bounded crowd of clients that all run one driver.
type Flood struct {
	Target  string             // host:port
	Clients int                // at once
	Sources int                // addresses they come from, in turn; 0: one per client
	Source  func(n int) net.IP // the address of the n-th of them; nil: Source
	Most    int                // runs of the driver in all; 0: as many as fit into the time
	Rate    int                // bytes per second each client reads; 0: unbounded
	Pause   time.Duration
	Driver  Driver
	Result  *Result // counts while it runs; nil: a new one
}

// NewResult returns an empty result.
func NewResult() *Result { return &Result{Statuses: map[int]int{}} }

// Run floods until ctx ends or Most is reached, and returns what came back.
func (f Flood) Run(ctx context.Context) *Result {
	res := f.Result
	if res == nil {
		res = NewResult()
	}
	if f.Sources == 0 {
		f.Sources = f.Clients
	}
	if f.Source == nil {
		f.Source = Source
	}
	var wg sync.WaitGroup
	for i := range f.Clients {
		wg.Go(func() {
			for run := i; ctx.Err() == nil; run += f.Clients {
				if n := res.started.Add(1); f.Most > 0 && int(n) > f.Most {
					return
				}
				c := &Client{Source: f.Source(run % f.Sources), Addr: f.Target, Rate: f.Rate, Number: run}
				answers := f.Driver(ctx, c)
				c.Close()
				if ctx.Err() != nil {
					return // the end of the flood is no answer
				}
				res.add(answers)
				Pause(ctx, f.Pause)
			}
		})
	}
	wg.Wait()
	return res
}
