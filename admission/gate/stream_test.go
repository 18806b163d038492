package gate

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
)

// streamUpstream switches protocols at /ws, sends events at /sse until the
// request ends, answers as gRPC does at /grpc, and is plain elsewhere.
func streamUpstream(t *testing.T, events chan string) Next {
	t.Helper()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/ws"):
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = c.Close() }()
			_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			_ = rw.Flush()
			_, _ = io.Copy(c, rw)
		case strings.HasSuffix(r.URL.Path, "/sse"):
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			for {
				select {
				case e := <-events:
					_, _ = io.WriteString(w, "data: "+e+"\n\n")
					_ = http.NewResponseController(w).Flush()
				case <-r.Context().Done():
					return
				}
			}
		default:
			_, _ = io.WriteString(w, "plain")
		}
	}))
	t.Cleanup(up.Close)
	to, _ := url.Parse(up.URL)
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	return func(w http.ResponseWriter, r *http.Request) error {
		proxy.ServeHTTP(w, r)
		return nil
	}
}

func upgrade(t *testing.T, s *testServer, path string) (net.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, br, resp
}

func held(s *testServer, c admission.Class) int {
	return s.state.Controller.Snapshot().Classes[c].InUse
}

// waitInUse returns when class c holds n permits.
func waitInUse(t *testing.T, s *testServer, c admission.Class, n int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); held(s, c) != n; {
		if time.Now().After(end) {
			t.Fatalf("%s holds %d, want %d", c, held(s, c), n)
		}
		runtime.Gosched()
	}
}

// What the upstream's answer makes a stream moves to class stream from wherever
// it was, frees its old permit, and works through the writer.
func TestUpstreamsAnswerMakesAStream(t *testing.T) {
	for name, cfg := range map[string]admission.Config{
		"from uncapped other": {},
		"from capped other":   {Classes: map[string]*admission.ClassConfig{"other": {Max: ptr(5)}}},
	} {
		t.Run(name, func(t *testing.T) {
			events := make(chan string)
			s := serve(t, cfg, Options{}, streamUpstream(t, events))

			c, br, resp := upgrade(t, s, "/ws")
			if resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatal(resp.Status)
			}
			_, _ = io.WriteString(c, "echo\n")
			if line, err := br.ReadString('\n'); line != "echo\n" {
				t.Fatalf("%q %v", line, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/sse", nil)
			sse, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range []string{"one", "two"} {
				events <- e
				buf := make([]byte, len("data: "+e+"\n\n"))
				if _, err := io.ReadFull(sse.Body, buf); err != nil || string(buf) != "data: "+e+"\n\n" {
					t.Fatalf("%q %v", buf, err)
				}
			}
			waitInUse(t, s, admission.Stream, 2)
			if n := held(s, admission.Other); n != 0 {
				t.Errorf("%d permits stayed in other", n)
			}
			cancel()
			_ = sse.Body.Close()
			_ = c.Close()
			waitInUse(t, s, admission.Stream, 0)
		})
	}
}

// A gRPC answer over HTTP/2 is a stream, both ways at once, with its trailers.
func TestGRPCKeepsItsTrailers(t *testing.T) {
	s := serve(t, admission.Config{}, Options{}, func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Content-Type", "application/grpc+proto")
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = io.WriteString(w, "message")
		_ = http.NewResponseController(w).Flush()
		_, err := io.Copy(io.Discard, r.Body)
		w.Header().Set("Grpc-Status", "0")
		return err
	})
	h2 := httptest.NewUnstartedServer(s.Config.Handler)
	h2.EnableHTTP2 = true
	h2.StartTLS()
	t.Cleanup(h2.Close)
	pr, pw := io.Pipe()
	r, _ := http.NewRequest(http.MethodPost, h2.URL+"/grpc", pr)
	r.Header.Set("Content-Type", "application/grpc")
	resp, err := h2.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if n := held(s, admission.Stream); n != 1 || resp.ProtoMajor != 2 {
		t.Errorf("stream holds %d over %s, want 1 over HTTP/2", n, resp.Proto)
	}
	_ = pw.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || string(b) != "message" || resp.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("%q %v, trailer %v", b, err, resp.Trailer)
	}
	_ = resp.Body.Close()
	waitInUse(t, s, admission.Stream, 0)
}

// What the client asks for is no reason.
func TestClientCannotAskForAStream(t *testing.T) {
	s := serve(t, admission.Config{}, Options{}, streamUpstream(t, nil))
	r, _ := http.NewRequest(http.MethodGet, s.URL+"/page", nil)
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Content-Type", "application/grpc")
	s.send(t, r, "", map[string]string{"Connection": "Upgrade", "Upgrade": "websocket"})
	if n := s.admitted(admission.Stream); n != 0 {
		t.Errorf("%d in stream", n)
	}
}

// With stream full a stream goes on where it was; when streams are capped, the
// upstream's answer is replaced by a refusal and the upstream is let go.
func TestFullStreams(t *testing.T) {
	cfg := admission.Config{Classes: map[string]*admission.ClassConfig{"stream": {Max: ptr(1)}}}
	capped := admission.Config{Classes: map[string]*admission.ClassConfig{"stream": {Max: ptr(1)}, "other": {Max: ptr(9)}}}
	for name, c := range map[string]struct {
		cfg    admission.Config
		opts   Options
		status int
	}{
		"stays":                     {cfg, Options{}, http.StatusSwitchingProtocols},
		"stays in capped other":     {capped, Options{}, http.StatusSwitchingProtocols},
		"refused":                   {cfg, Options{StreamRefuses: true}, http.StatusServiceUnavailable},
		"refused from capped other": {capped, Options{StreamRefuses: true}, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, c.cfg, c.opts, streamUpstream(t, nil))
			first, _, resp := upgrade(t, s, "/ws")
			if resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatal(resp.Status)
			}
			waitInUse(t, s, admission.Stream, 1)
			second, br, resp := upgrade(t, s, "/ws")
			if resp.StatusCode != c.status {
				t.Fatalf("the second got %s", resp.Status)
			}
			if c.status == http.StatusSwitchingProtocols {
				_, _ = io.WriteString(second, "echo\n")
				if line, _ := br.ReadString('\n'); line != "echo\n" {
					t.Errorf("%q", line)
				}
			} else {
				if resp.Header.Get("Upgrade") != "" || !strings.Contains(resp.Header.Get(HeaderRefused), "class=stream") {
					t.Errorf("header %v", resp.Header)
				}
				sse := s.get(t, "/sse", "", nil)
				if sse.StatusCode != c.status || strings.HasPrefix(sse.Header.Get("Content-Type"), "text/event") {
					t.Errorf("an event stream got %s %v", sse.Status, sse.Header)
				}
			}
			_ = first.Close()
			_ = second.Close()
			waitInUse(t, s, admission.Stream, 0)
			waitInUse(t, s, admission.Other, 0)
		})
	}
}

// A stream that begins in class web frees its place there.
func TestStreamLeavesWeb(t *testing.T) {
	events := make(chan string)
	s := serve(t, admission.Config{Classes: map[string]*admission.ClassConfig{"web": {Max: ptr(1)}}},
		Options{Profile: classify.Gitea}, streamUpstream(t, events))
	c, _, resp := upgrade(t, s, "/o/r/src/ws")
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp.Status)
	}
	waitInUse(t, s, admission.Web, 0)
	waitInUse(t, s, admission.Stream, 1)
	_ = c.Close()
	waitInUse(t, s, admission.Stream, 0)
}

// Long polls and event paths of a preset are streams before any answer; with
// stream full they go on in other.
func TestPresetPathsAreStreams(t *testing.T) {
	f := newFakeForge()
	s := serveForge(t, admission.Config{Classes: map[string]*admission.ClassConfig{"stream": {Max: ptr(1)}}}, Options{}, f)
	done := make(chan struct{}, 2)
	for i := range 2 {
		go func() {
			s.get(t, "/user/events?hold", "", nil)
			done <- struct{}{}
		}()
		<-f.entered
		if n := held(s, admission.Stream); n != 1 {
			t.Errorf("%d polls: stream holds %d", i+1, n)
		}
	}
	if n := held(s, admission.Other); n != 1 {
		t.Errorf("other holds %d, want the second poll", n)
	}
	close(f.hold)
	<-done
	<-done
}

// Git never moves, whatever its server answers.
func TestGitNeverMoves(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, admission.Config{}, Options{}, func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		<-release
		return nil
	})
	r, _ := http.NewRequest(http.MethodPost, s.URL+"/o/r.git/git-receive-pack", strings.NewReader("0000"))
	r.Header.Set("Content-Type", "application/x-git-receive-pack-request")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if n := held(s, admission.Anonymous); n != 1 {
		t.Errorf("anonymous holds %d, want 1", n)
	}
	close(release)
	_ = resp.Body.Close()
}
