package cases

import (
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"
)

func wireWorld(plain, secure string) *world {
	return &world{c: &Case{}, book: newBook(), ledger: newLedger(), tokens: newTokens(plain), runner: &Runner{},
		gateway: &gateway{plain: plain, secure: secure}}
}

func TestRawBytes(t *testing.T) {
	addr := plainServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Two") == "2" {
			w.WriteHeader(http.StatusTeapot)
		}
	})
	w := wireWorld(addr, "")
	step := &Step{Op: "raw", Name: "r", GapMS: 20, Data: Strings{"GET / HTTP/1.1\r\nHost: {{gw}}\r\n", "X-Two: 2\r\n\r\n"}}
	if err := w.raw(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	if e := w.book.of("r")[0]; e.status != http.StatusTeapot {
		t.Errorf("status %d, %v", e.status, e.err)
	}
}

func TestFloodsEndTheConnection(t *testing.T) {
	addr := plainServer(t, func(w http.ResponseWriter, r *http.Request) {})
	for _, step := range []*Step{
		{Op: "h2_continuation_flood", Name: "c", Path: "/", Frames: 5000},
		{Op: "h2_reset_flood", Name: "r", Path: "/", N: 20000, Concurrency: 2},
	} {
		w := wireWorld(addr, "")
		if err := w.http2Flood(t.Context(), step); err != nil {
			t.Fatal(err)
		}
		for _, e := range w.book.of(step.Name) {
			if e.status != 0 || !e.isDone() {
				t.Errorf("%s: status %d", step.Op, e.status)
			}
			if step.Op == "h2_continuation_flood" && e.closedBy != "gateway" {
				t.Errorf("an endless header block was taken: closed by %q, %v", e.closedBy, e.err)
			}
		}
	}
}

func TestHTTP3Resumes(t *testing.T) {
	cert, key, err := writeCertificate(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	resumed := make(chan bool, 3)
	s := &http3.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { resumed <- r.TLS.DidResume })}
	t.Cleanup(func() { s.Close() })
	go http3Serve(s, conn, cert, key)
	w := wireWorld("127.0.0.1:1", conn.LocalAddr().String())
	if err := w.http3Resume(t.Context(), &Step{Op: "h3_resume", Name: "h", Path: "/", N: 2, EarlyData: new(bool)}); err != nil {
		t.Fatal(err)
	}
	for i, e := range w.book.of("h") {
		if e.status != 200 {
			t.Errorf("request %d: status %d, %v", i, e.status, e.err)
		}
	}
	if first, second := <-resumed, <-resumed; first || !second {
		t.Errorf("resumed %v then %v, want a fresh and a resumed connection", first, second)
	}
}

func TestFarSideKnowsTheUnreadBytes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(strings.Repeat("x", 1000))); err != nil {
		t.Fatal(err)
	}
	tcp := conn.(*net.TCPConn)
	deadline := time.Now().Add(5 * time.Second)
	for farSide(tcp).unread != 1000 && time.Now().Before(deadline) {
		pause(t.Context(), time.Millisecond)
	}
	if got := farSide(tcp); !got.found || got.state != established || got.unread != 1000 {
		t.Fatalf("%+v, want 1000 unread bytes", got)
	}
	server.Close()
	if !watchClosed(t.Context(), tcp) {
		t.Error("the close was not seen")
	}
}

func http3Serve(s *http3.Server, conn net.PacketConn, cert, key string) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return
	}
	s.TLSConfig = http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{pair}})
	s.Serve(conn)
}
