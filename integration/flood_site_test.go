package integration

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/flood"
	"github.com/caddy-admission/gateway/integration/harness"
)

// patience is what a person waits for a push in the flood tests. It is far above what pushes take, so that a busy machine
// fails none; a push that the gateway refuses fails at once.
const patience = 2 * time.Minute

// crowdBackend is a server with as many workers as a total of 16 lets through.
var crowdBackend = flood.BackendConfig{Workers: 16}

// people are numbered from here, so that nobody has the address of an attacker.
const people = 40_000

// crowdSite is a gateway in front of a real git server with a fixed number of workers.
type crowdSite struct {
	*harness.Gateway
	backend *flood.Backend
	addr    string // of the gateway
	port    int
	home    string
	tip     string
	person  int // the next one
}

// newCrowdSite starts both. The server knows dev<number> with the password of [secretOf]; its repository /pub.git, of size
// bytes, is open to read for everybody and any credential.
func newCrowdSite(t *testing.T, directive string, size int, cfg flood.BackendConfig) *crowdSite {
	t.Helper()
	s := newCrowdServer(t, size, cfg)
	s.front(t, directive, s.backend.URL[len("http://"):])
	return s
}

// newCrowdServer starts only the server.
func newCrowdServer(t *testing.T, size int, cfg flood.BackendConfig) *crowdSite {
	t.Helper()
	harness.Tool(t, "git")
	s := &crowdSite{home: harness.TempDir(t), person: people}
	bare, err := flood.NewRepository(t.Context(), s.home, "pub.git", 4, size/4)
	if err != nil {
		t.Fatal(err)
	}
	if s.tip, err = flood.Tip(t.Context(), bare); err != nil {
		t.Fatal(err)
	}
	cfg.Root = s.home
	cfg.Account = func(user, password string) bool { return password == secretOf(user) }
	if s.backend, err = flood.StartBackend(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.backend.Close)
	return s
}

// front starts the gateway in front of upstream.
func (s *crowdSite) front(t *testing.T, directive, upstream string) {
	t.Helper()
	s.port = harness.Port(t)
	s.addr = fmt.Sprintf("127.0.0.1:%d", s.port)
	s.Gateway = harness.StartGateway(t, s.config(directive, upstream))
}

func (s *crowdSite) config(directive, upstream string) harness.Config {
	return harness.Config{
		Global: "log {\n output discard\n}",
		Sites:  fmt.Sprintf("http://:%d {\n%s\nreverse_proxy %s\n}", s.port, directive, upstream),
	}
}

func secretOf(user string) string { return "secret of " + user }

// person is somebody with an account who pushes.
type person struct {
	*flood.Pusher
	url        string
	repository string
}

// someone returns a person nobody has seen before: a new account, and a new address unless at is given (host:port of the
// gateway, for the address 127.0.0.1).
func (s *crowdSite) someone(t *testing.T, at string) *person {
	t.Helper()
	user := fmt.Sprintf("dev%d", s.person)
	s.person++
	if at == "" {
		relay, err := flood.StartRelay(s.addr, s.person)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(relay.Close)
		at = relay.Addr
	}
	p, err := flood.NewPusher(t.Context(), s.home, user)
	if err != nil {
		t.Fatal(err)
	}
	return &person{Pusher: p, repository: "pub.git", url: flood.WithCredential("http://"+at+"/pub.git", user, secretOf(user))}
}

// push pushes once and fails the test when that fails.
func (p *person) push(t *testing.T, limit time.Duration) time.Duration {
	t.Helper()
	a := p.Push(t.Context(), p.url, limit)
	if !a.OK {
		t.Errorf("push of %s failed after %v: %s", p.Name, a.Took.Round(time.Millisecond), a.Said)
	}
	return a.Took
}

// pushAll lets everybody push times times, atOnce of them at a time, and returns how long the pushes took.
func pushAll(t *testing.T, all []*person, times, atOnce int, limit time.Duration) []time.Duration {
	t.Helper()
	var mu sync.Mutex
	var took []time.Duration
	queue := make(chan *person)
	var running sync.WaitGroup
	for range atOnce {
		running.Go(func() {
			for p := range queue {
				for range times {
					d := p.push(t, limit)
					mu.Lock()
					took = append(took, d)
					mu.Unlock()
				}
			}
		})
	}
	for _, p := range all {
		queue <- p
	}
	close(queue)
	running.Wait()
	return took
}

// crowd is a flood that goes on beside the test.
type crowd struct {
	*flood.Result
	started time.Time
	stop    func()
}

// start starts a flood against the gateway; it ends with stop or with the test.
func (s *crowdSite) start(t *testing.T, f flood.Flood) *crowd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	c := &crowd{Result: flood.NewResult(), started: time.Now()}
	f.Target, f.Result = s.addr, c.Result
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	c.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(c.stop)
	return c
}

// waitAnswers waits until the flood has had n answers.
func (c *crowd) waitAnswers(t *testing.T, n int) {
	t.Helper()
	harness.Eventually(t, 2*time.Minute, fmt.Sprintf("%d answers to the flood", n), func() error {
		if got := c.Answers(); got < n {
			return fmt.Errorf("%d so far", got)
		}
		return nil
	})
}

// report logs how pushes went beside a flood.
func report(t *testing.T, took []time.Duration, c *crowd) {
	t.Helper()
	t.Logf("%d pushes: median %v, worst %v; the flood had %d answers, %d refusals, %d served",
		len(took), flood.Quantile(took, 0.5).Round(time.Millisecond), flood.Quantile(took, 1).Round(time.Millisecond),
		c.Answers(), c.Refused(), c.Served())
}

// ownAddress is the address git comes from when it connects to the gateway itself.
var ownAddress = net.IPv4(127, 0, 0, 1)
