package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// startGRPC starts an upstream that speaks HTTP/2 without TLS and answers as gRPC does: it sends every byte back as it comes,
// and a status in the trailer.
func startGRPC(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		control := http.NewResponseController(w)
		_ = control.Flush()
		for buf := make([]byte, 1024); ; {
			n, err := r.Body.Read(buf)
			_, _ = w.Write(buf[:n])
			_ = control.Flush()
			if err != nil {
				break
			}
		}
		w.Header().Set("Grpc-Status", "0")
	})}
	s.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().String()
}

// TestStreamsOutliveAReload: a WebSocket, an event stream and a gRPC stream over HTTP/2 go on across a reload, in class stream
// and in no other, and their places are free when they end.
func TestStreamsOutliveAReload(t *testing.T) {
	echo, grpc, port := harness.StartEcho(t), startGRPC(t), harness.Port(t)
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	config := func(total int) harness.Config {
		return harness.Config{
			Global: "servers {\n protocols h1 h2c\n}",
			Sites: fmt.Sprintf(`http://:%d {
	admission {
		total %d
	}
	reverse_proxy /grpc h2c://%s
	reverse_proxy %s {
		stream_close_delay 5m
	}
}`, port, total, grpc, echo.Addr),
		}
	}
	g := harness.StartGateway(t, config(16))

	ws := dial(t, addr, "GET /api/ws HTTP/1.1\r\nHost: git.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", http.StatusSwitchingProtocols)
	sse := dial(t, addr, "GET /user/events HTTP/1.1\r\nHost: git.test\r\n\r\n", http.StatusOK)
	send, received := openGRPC(t, addr)

	exchange := func(when string) {
		t.Helper()
		if _, err := io.WriteString(ws.conn, when+"\n"); err != nil {
			t.Fatalf("%s: WebSocket: %v", when, err)
		}
		ws.want(t, when)
		echo.Send(when)
		sse.want(t, "data: "+when)
		if _, err := io.WriteString(send, when+"\n"); err != nil {
			t.Fatalf("%s: gRPC: %v", when, err)
		}
		if line, err := bufio.NewReader(io.LimitReader(received.Body, int64(len(when)+1))).ReadString('\n'); line != when+"\n" {
			t.Fatalf("%s: gRPC sent back %q: %v", when, line, err)
		}
	}
	exchange("before")
	g.WaitInUse(t, "stream", 3)
	if err := g.Reload(config(24)); err != nil {
		t.Fatal(err)
	}
	exchange("after")
	p := g.Pool(t)
	for name, c := range p.Classes {
		if want := map[bool]int{true: 3}[name == "stream"]; c.InUse != want {
			t.Errorf("class %s holds %d, want %d", name, c.InUse, want)
		}
	}
	if p.Total.Max != 24 || p.Total.InUse != 0 {
		t.Errorf("total %+v: the reload did not happen, or streams hold git's places", p.Total)
	}

	_ = send.Close()
	if _, err := io.Copy(io.Discard, received.Body); err != nil || received.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("the end of gRPC: %v, trailer %v", err, received.Trailer)
	}
	_ = ws.conn.Close()
	echo.Send("") // ends the event stream
	_ = sse.conn.Close()
	g.WaitInUse(t, "stream", 0)
}

// line is one open connection.
type line struct {
	conn net.Conn
	in   *bufio.Reader
}

func dial(t *testing.T, addr, request string, status int) *line {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	first, err := in.ReadString('\n')
	if err != nil || !strings.Contains(first, fmt.Sprint(status)) {
		t.Fatalf("%.40q: %q %v", request, first, err)
	}
	return &line{c, in}
}

// want reads up to a line that ends so.
func (l *line) want(t *testing.T, text string) {
	t.Helper()
	for {
		got, err := l.in.ReadString('\n')
		if strings.HasSuffix(strings.TrimSpace(got), text) {
			return
		}
		if err != nil {
			t.Fatalf("waiting for %q: %v", text, err)
		}
	}
}

func openGRPC(t *testing.T, addr string) (io.WriteCloser, *http.Response) {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	body, send := io.Pipe()
	r, err := http.NewRequest(http.MethodPost, "http://"+addr+"/grpc", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("Te", "trailers")
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close(); _ = send.Close() })
	return send, resp
}
