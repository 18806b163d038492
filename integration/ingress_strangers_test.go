package integration

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// strangersFor is how long each kind of stranger keeps at it.
const strangersFor = 30 * time.Second

// TestStrangersDelayNoKnownSender: with the budgets of the default configuration, whatever a stranger does for 30 seconds,
// every delivery of a sender that is known is accepted. Each kind has a gateway of its own, so that none spoils another's
// attack; they run at the same time.
func TestStrangersDelayNoKnownSender(t *testing.T) {
	for name, k := range map[string]struct {
		attack func(ctx context.Context, addr string) (sent int, err error)
		size   int           // of a known sender's delivery
		every  time.Duration // one is sent
	}{
		// Six of the eight MiB that come back every second, so that nothing but the part that is kept for known senders is left.
		"one declares 25 MiB every second":             {declareEachSecond, 6 << 20, time.Second},
		"one sends 100 small forged ones a second":     {forgeSmall, 8 << 10, 250 * time.Millisecond},
		"eight hold a permit each with a slow trickle": {trickleEight, 8 << 10, 250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			worker := harness.StartReceiver(t)
			s := startIngress(t, worker.Addr, githubHook(t, "/hooks/ci"))
			ctx, cancel := context.WithTimeout(t.Context(), strangersFor)
			defer cancel()
			genuine := s.knownSender(t, k.size)
			genuine()
			var strangers sync.WaitGroup
			var sent int
			var err error
			strangers.Go(func() { sent, err = k.attack(ctx, s.addr) })
			n := 1
			for ; ctx.Err() == nil; n++ {
				genuine()
				<-time.After(k.every) // and not a ticker: two of them never come closer together than this
			}
			strangers.Wait()
			if err != nil {
				t.Errorf("the strangers: %v", err)
			}
			got := s.Pool(t).Ingress.Webhooks
			t.Logf("%d deliveries accepted beside %d of strangers: %v", n, sent, grown(nil, got))
			if got["delivered"] != int64(n) || worker.Count() != n {
				t.Errorf("%d delivered, %d arrived, want %d", got["delivered"], worker.Count(), n)
			}
			if sent < 25 {
				t.Errorf("the strangers sent %d, too few to show anything", sent)
			}
		})
	}
}

// knownSender returns a function that sends a delivery from one network and fails the test when it is not accepted.
func (s *ingressSite) knownSender(t *testing.T, size int) func() {
	body := strings.Repeat("0", size)
	head := delivery("/hooks/ci", body, int64(len(body)))
	return func() {
		t.Helper()
		r, err := sendRaw(harness.Loopback(1), s.addr, head, body)
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("a known sender's delivery: %v %v; state %v", r, err, grown(nil, s.Pool(t).Ingress.Webhooks))
		}
	}
}

// stranger connects from the network n, which is not the known sender's.
func stranger(ctx context.Context, addr string, n int) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(harness.Loopback(300 * (n + 1)))}}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		context.AfterFunc(ctx, func() { c.Close() })
	}
	return c, err
}

// declareEachSecond starts a forged 25 MiB delivery every second and sends its body as slowly as it may, so that what it has
// declared stays charged for as long as possible.
func declareEachSecond(ctx context.Context, addr string) (sent int, err error) {
	for tick := time.Tick(time.Second); ctx.Err() == nil; sent++ {
		c, err := stranger(ctx, addr, 0)
		if err != nil {
			return sent, unlessOver(ctx, err)
		}
		if _, err := io.WriteString(c, forgedDelivery("/hooks/ci", uploadSize)); err != nil {
			return sent, unlessOver(ctx, err)
		}
		go func() {
			for range time.Tick(200 * time.Millisecond) {
				if _, err := c.Write(block[:16<<10]); err != nil {
					return // answered, or over
				}
			}
		}()
		select {
		case <-tick:
		case <-ctx.Done():
		}
	}
	return sent, nil
}

// forgeSmall sends 100 forged deliveries a second on kept-alive connections.
func forgeSmall(ctx context.Context, addr string) (sent int, err error) {
	body := strings.Repeat("x", 200)
	request := forgedDelivery("/hooks/ci", int64(len(body))) + body
	var c net.Conn
	var answers *bufio.Reader
	for tick := time.Tick(10 * time.Millisecond); ctx.Err() == nil; sent++ {
		if c == nil {
			if c, err = stranger(ctx, addr, 0); err != nil {
				return sent, unlessOver(ctx, err)
			}
			answers = bufio.NewReader(c)
		}
		if _, err := io.WriteString(c, request); err != nil {
			return sent, unlessOver(ctx, err)
		}
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			return sent, unlessOver(ctx, err)
		}
		io.Copy(io.Discard, resp.Body)
		if resp.Close {
			c.Close()
			c = nil
		}
		select {
		case <-tick:
		case <-ctx.Done():
		}
	}
	return sent, nil
}

// trickleEight keeps eight networks sending, each a little more than the least rate, so that it is never cut for being slow.
func trickleEight(ctx context.Context, addr string) (sent int, err error) {
	var all sync.WaitGroup
	var mu sync.Mutex // protects sent and err
	for n := range 8 {
		all.Go(func() {
			for pause := time.Tick(200 * time.Millisecond); ctx.Err() == nil; {
				e := trickleOne(ctx, addr, n)
				mu.Lock()
				sent++
				if e != nil {
					err = e
				}
				mu.Unlock()
				select {
				case <-pause:
				case <-ctx.Done():
				}
			}
		})
	}
	all.Wait()
	return sent, err
}

// trickleOne sends one forged delivery slowly until it is answered.
func trickleOne(ctx context.Context, addr string, n int) error {
	c, err := stranger(ctx, addr, n)
	if err != nil {
		return unlessOver(ctx, err)
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		http.ReadResponse(bufio.NewReader(c), nil)
		c.Close()
	}()
	defer func() { c.Close(); <-answered }()
	tick := time.Tick(50 * time.Millisecond)
	if _, err := io.WriteString(c, forgedDelivery("/hooks/ci", 4<<20)); err != nil {
		return unlessOver(ctx, err)
	}
	for {
		if _, err := c.Write(block[:8<<10]); err != nil {
			return nil // answered and closed
		}
		select {
		case <-tick:
		case <-answered:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// unlessOver is err unless the time is over, which ends everything that is under way.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
