package gate

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

const uploadSize = 25 << 20

// zeros is an upload of n bytes that never ends early.
type zeros struct{ left int }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), z.left)
	clear(p[:n])
	z.left -= n
	return n, nil
}

// uploadServer is a real server whose gate's reads of bodies are counted apart
// from what net/http reads from the connection.
type uploadServer struct {
	*httptest.Server
	state *State
	ours  atomic.Int64 // bytes and calls by our code
	wire  atomic.Int64 // bytes read from all connections
}

type countedListener struct {
	net.Listener
	n *atomic.Int64
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countedConn{c, l.n}, err
}

type countedConn struct {
	net.Conn
	n *atomic.Int64
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.Add(int64(n))
	return n, err
}

type watchedBody struct {
	io.ReadCloser
	n *atomic.Int64
}

func (b watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n) + 1)
	return n, err
}

func newUploadServer(t *testing.T, h2 bool, next Next) *uploadServer {
	t.Helper()
	s := &uploadServer{}
	state, g := newIngressGate(t, admission.Config{}, IngressConfig{Hooks: []HookConfig{githubHook(t, "/hooks/ci")}})
	s.state = state
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = watchedBody{r.Body, &s.ours}
		_ = g.Serve(w, r, next)
	}))
	s.Listener = countedListener{s.Listener, &s.wire}
	if h2 {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// badUpload sends an upload whose signature header is missing and returns the
// status that its client saw. On HTTP/1.1 it reads while it writes, and with
// expect it waits for the 100 as curl does.
func (s *uploadServer) badUpload(h2, chunked, expect bool) (int, error) {
	if h2 {
		return s.badUpload2(chunked)
	}
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	d := delivery{declared: uploadSize, chunked: chunked}
	if expect {
		d.header = []string{"Expect: 100-continue"}
	}
	go func() {
		_, _ = io.WriteString(c, strings.Replace(d.head(), "X-Hub-Signature-256", "X-Other", 1))
		switch {
		case expect:
		case chunked:
			for range uploadSize >> 20 {
				_, _ = fmt.Fprintf(c, "%x\r\n", 1<<20)
				_, _ = io.Copy(c, &zeros{1 << 20})
				_, _ = io.WriteString(c, "\r\n")
			}
		default:
			_, _ = io.Copy(c, &zeros{uploadSize})
		}
	}()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, nil
}

func (s *uploadServer) badUpload2(chunked bool) (int, error) {
	r, err := http.NewRequest(http.MethodPost, s.URL+"/hooks/ci", &zeros{uploadSize})
	if err != nil {
		return 0, err
	}
	if !chunked {
		r.ContentLength = uploadSize
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := s.Client().Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return resp.StatusCode, nil
}

// TestBadUploadsAreNeverRead: 25 MiB uploads with a bad header. Our code reads
// nothing, net/http at most 257 KiB on HTTP/1.1 (twice that when chunked), every
// client sees the answer and no bucket changes.
func TestBadUploadsAreNeverRead(t *testing.T) {
	for _, c := range []struct {
		name            string
		h2, chunked, ex bool
	}{
		{"http/1.1 length", false, false, false}, {"http/1.1 chunked", false, true, false},
		{"http/1.1 length expect", false, false, true}, {"http/1.1 chunked expect", false, true, true},
		{"http/2 length", true, false, false}, {"http/2 chunked", true, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			const clients = 20 // six ways: 120
			s := newUploadServer(t, c.h2, (&hookReceiver{}).next)
			now := time.Now()
			before := levels(s.state, now)
			var wg sync.WaitGroup
			var seen atomic.Int64
			for range clients {
				wg.Go(func() {
					code, err := s.badUpload(c.h2, c.chunked, c.ex)
					if err != nil {
						t.Errorf("no answer: %v", err)
					}
					if code == http.StatusUnauthorized {
						seen.Add(1)
					}
				})
			}
			wg.Wait()
			if seen.Load() != clients {
				t.Errorf("%d of %d saw the 401", seen.Load(), clients)
			}
			if n := s.ours.Load(); n != 0 {
				t.Errorf("our code read bodies: %d", n)
			}
			limit := int64(257<<10 + 4<<10)
			if c.chunked {
				limit *= 2 // net/http drains twice: before the header and when it closes the body
			}
			if n := s.wire.Load() / clients; !c.h2 && n > limit {
				t.Errorf("net/http read %d bytes a client", n)
			}
			if levels(s.state, now) != before {
				t.Errorf("buckets from %v to %v", before, levels(s.state, now))
			}
		})
	}
}

// A trickling upload sees its refusal within 250 ms.
func TestTricklingUploadIsAnsweredAtOnce(t *testing.T) {
	u := &hookReceiver{}
	ingressBubble(t, admission.Config{}, oneHook(t), u.next, func(t *testing.T, s *ingressServer) {
		d := delivery{declared: uploadSize}
		for name, raw := range map[string]string{
			"length":  d.head(),
			"small":   delivery{declared: 20}.head(),
			"chunked": delivery{chunked: true}.head(),
			"expect":  delivery{declared: uploadSize, header: []string{"Expect: 100-continue"}}.head(),
		} {
			start := time.Now()
			raw = strings.Replace(raw, "X-Hub-Signature-256", "X-Other", 1)
			if code, _ := s.send(raw); code != http.StatusUnauthorized || time.Since(start) > 250*time.Millisecond {
				t.Errorf("%s: %d after %v", name, code, time.Since(start))
			}
		}
	})
}

// TestUploadMemory: 64 senders of 25 MiB bodies hold at most four bodies and a
// stated constant of 48 MiB for everything else.
func TestUploadMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("moves gigabytes")
	}
	s := newUploadServer(t, false, (&hookReceiver{status: 200}).discard)
	stop, done, peak := make(chan struct{}), make(chan struct{}), uint64(0)
	go func() {
		defer close(done)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapInuse)
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	base := m.HeapInuse
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			c, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			go func() {
				_, _ = io.WriteString(c, delivery{declared: uploadSize, forged: true, addr: fmt.Sprintf("198.51.%d.1", i)}.head())
				_, _ = io.Copy(c, &zeros{uploadSize})
			}()
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
				t.Errorf("no answer: %v", err)
			}
		})
	}
	wg.Wait()
	close(stop)
	<-done
	if limit := base + 4*uploadSize + 48<<20; peak > limit {
		t.Errorf("heap peaked at %d MiB over %d MiB", peak>>20, base>>20)
	}
	t.Logf("heap peak %d MiB, before %d MiB", peak>>20, base>>20)
}

func (u *hookReceiver) discard(w http.ResponseWriter, r *http.Request) error {
	_, err := io.Copy(io.Discard, r.Body)
	w.WriteHeader(u.status)
	return err
}

// Verified deliveries pass on HTTP/2 as well, and a slow body is cut there.
func TestHookOnHTTP2(t *testing.T) {
	u := &hookReceiver{}
	s := newUploadServer(t, true, u.next)
	send := func(body io.Reader, signed string) int {
		r, err := http.NewRequest(http.MethodPost, s.URL+"/hooks/ci", body)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range map[string]string{"Content-Type": "application/json", "X-GitHub-Event": "push",
			"X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958", "X-Hub-Signature-256": sign(signed)} {
			r.Header.Set(k, v)
		}
		resp, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.ProtoMajor != 2 {
			t.Fatalf("protocol %s", resp.Proto)
		}
		return resp.StatusCode
	}
	if code := send(strings.NewReader(`{"n":1}`), `{"n":1}`); code != 200 || u.count() != 1 {
		t.Errorf("%d", code)
	}
	pr, pw := io.Pipe()
	defer pw.Close()
	if code := send(pr, "x"); code != http.StatusRequestTimeout {
		t.Errorf("silent body: %d, want 408", code)
	}
	if n := inUse(s.state, admission.Webhook); n != 0 {
		t.Errorf("%d in use", n)
	}
}
