package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeReceiver stands for a hook's receiver; it runs inside a bubble.
type fakeReceiver struct {
	// answer decides about one request; it may block on ctx. 0 = unreachable.
	answer func(ctx context.Context, repo string, body string) int

	mu      sync.Mutex
	got     []string // bodies that were answered 2xx, in order
	at      map[string]time.Time
	headers []http.Header
	queries []string
	running int
	most    int
	tries   int
}

func (f *fakeReceiver) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.tries++
	f.running++
	f.most = max(f.most, f.running)
	f.headers = append(f.headers, r.Header.Clone())
	f.queries = append(f.queries, r.URL.RawQuery)
	answer := f.answer
	f.mu.Unlock()
	status := answer(r.Context(), r.Header.Get("X-Webhook-Event"), string(body))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
	switch {
	case status == 0:
		return nil, errAway
	case r.Context().Err() != nil:
		return nil, r.Context().Err()
	case status/100 == 2:
		f.got = append(f.got, string(body))
		if f.at == nil {
			f.at = map[string]time.Time{}
		}
		f.at[string(body)] = time.Now()
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"text/plain"}},
		Body: io.NopCloser(strings.NewReader(fmt.Sprintf("said %d", status))), Request: r,
	}, nil
}

func (f *fakeReceiver) bodies() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got)
}

// set changes how the receiver answers from now on.
func (f *fakeReceiver) set(answer func(context.Context, string, string) int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// attempts returns how many requests came, and how many at a time at most.
func (f *fakeReceiver) attempts() (n, most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tries, f.most
}

// last returns the header and the query of the newest request.
func (f *fakeReceiver) last() (http.Header, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.headers[len(f.headers)-1], f.queries[len(f.queries)-1]
}

func always(status int) func(context.Context, string, string) int {
	return func(context.Context, string, string) int { return status }
}

// errAway is what a receiver that cannot be reached gives.
var errAway = &net.OpError{Op: "dial", Err: errors.New("refused")}

// hang answers only when its caller gives up.
func hang(ctx context.Context, _, _ string) int { <-ctx.Done(); return 599 }

// rig is a spool in memory with one hook, inside a bubble.
type rig struct {
	*testing.T
	s      *Spool
	disk   *memDisk
	far    *fakeReceiver
	config HookConfig
	events *recorder
}

// recorder remembers events.
type recorder struct {
	mu   sync.Mutex
	list []Event
}

func (r *recorder) put(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, e)
}

func (r *recorder) events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

const hookName = "/hooks/ci"

// bubble runs a test in fake time with a spool whose hook has this receiver.
func bubble(t *testing.T, c HookConfig, answer func(context.Context, string, string) int, test func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, disk: newMemDisk(), far: &fakeReceiver{answer: answer}, events: &recorder{}}
		r.config = c
		r.config.Name, r.config.Deliver, r.config.Transport = hookName, "http://127.0.0.1:1/ci", r.far
		r.open()
		defer func() {
			if err := r.s.Close(); err != nil {
				t.Error(err)
			}
		}()
		test(r)
	})
}

func (r *rig) open() {
	r.Helper()
	c := memConfig(r.disk)
	c.SegmentBytes = 256 << 10
	c.Log = r.events.put
	var err error
	if r.s, err = Open(c); err != nil {
		r.Fatal(err)
	}
	if err := r.s.SetHooks([]HookConfig{r.config}); err != nil {
		r.Fatal(err)
	}
}

// restart loses the power, and everything that was not synced, and starts
// again.
func (r *rig) restart() {
	r.Helper()
	disk := r.disk.crash(nil)
	_ = r.s.Close()
	r.disk = disk
	r.open()
}

// accept offers a delivery and returns its answer and how long that took.
func (r *rig) accept(d *Delivery) (Answer, time.Duration) {
	r.Helper()
	from := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), 4*time.Second)
	defer cancel()
	a, err := r.s.Accept(ctx, hookName, d)
	if err != nil {
		r.Fatalf("%s: %v", d.ID, err)
	}
	return a, time.Since(from)
}

// small is a delivery whose body is its id; its event carries the repository.
func small(repo string, n int) *Delivery {
	d := testDelivery(repo, n)
	d.Body = []byte(d.ID)
	d.Header.Set("X-Webhook-Event", repo)
	return d
}

// pass lets fake time go by until everything that is due by then has run.
func (r *rig) pass(d time.Duration) {
	time.Sleep(d) // inside the bubble: no real time
	synctest.Wait()
}

// inOrder checks that the deliveries of each repository arrived in order and
// returns how many different ones did.
func (r *rig) inOrder() int {
	r.Helper()
	last := map[string]int{}
	seen := map[string]bool{}
	for _, body := range r.far.bodies() {
		i := strings.LastIndex(body, "-")
		var n int
		if _, err := fmt.Sscanf(body[i+1:], "%d", &n); err != nil {
			r.Fatal(err)
		}
		if have, ok := last[body[:i]]; ok && n < have {
			r.Errorf("%s arrived after %d", body, have)
		}
		last[body[:i]] = n
		seen[body] = true
	}
	return len(seen)
}
