package cases

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// plainServer serves h on a free loopback port; HTTP/1.1 and h2c.
func plainServer(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	addr := freeAddress()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Addr: addr, Handler: h, Protocols: protocols, ErrorLog: quiet}
	go s.ListenAndServe()
	t.Cleanup(func() { s.Close() })
	for range 500 {
		if c, err := dialH1(t.Context(), addr, &wire{readAll: true}); err == nil {
			c.conn.Close()
			return addr
		}
		pause(t.Context(), 2*time.Millisecond)
	}
	t.Fatal("the server does not listen")
	return ""
}

// get sends one request with the HTTP/1.1 client.
func get(t *testing.T, addr string, w *wire) *exchange {
	t.Helper()
	w.host = addr
	if w.declared == 0 && w.body == nil {
		w.declared = -1
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	e := newExchange(w)
	conn, err := dialH1(ctx, addr, w)
	if err != nil {
		t.Fatal(err)
	}
	if conn.do(ctx, e) {
		conn.conn.Close()
	}
	return e
}

func TestClientMeasuresOnlyWhatThePeerReads(t *testing.T) {
	body := bytes.Repeat([]byte("x"), 8<<20)
	addr := plainServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/all" {
			io.Copy(io.Discard, r.Body)
		} else {
			w.Header().Set("Connection", "close")
			http.NewResponseController(w).SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	})
	post := func(path string) *exchange {
		return get(t, addr, &wire{method: "POST", target: path, body: body, declared: int64(len(body)), readAll: true, metered: true})
	}
	if e := post("/all"); e.status != 200 || e.taken != int64(len(body)) {
		t.Errorf("a peer that reads all: status %d, taken %d of %d", e.status, e.taken, len(body))
	}
	if e := post("/none"); e.status != 413 || e.taken > drainAllowance {
		t.Errorf("a peer that reads nothing: status %d, taken %d", e.status, e.taken)
	}
}

func TestClientAwaitsTheInvitation(t *testing.T) {
	addr := plainServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/invite" {
			io.Copy(io.Discard, r.Body)
		} else {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	post := func(path string) *exchange {
		body := make([]byte, 1000)
		return get(t, addr, &wire{method: "POST", target: path, body: body, declared: 1000, readAll: true, headers: Headers{{"Expect", "100-continue"}}})
	}
	if e := post("/invite"); e.status != 200 || e.sent != 1000 || len(e.info) != 1 {
		t.Errorf("invited: status %d, sent %d, informational %v", e.status, e.sent, e.info)
	}
	if e := post("/refuse"); e.status != 401 || e.sent != 0 {
		t.Errorf("refused: status %d, sent %d", e.status, e.sent)
	}
}

func TestClientSeesWhoCloses(t *testing.T) {
	addr := plainServer(t, func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		for range 64 {
			c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
			if _, err := io.WriteString(w, strings.Repeat("x", 1<<20)); err != nil {
				panic(http.ErrAbortHandler)
			}
		}
	})
	e := get(t, addr, &wire{method: "GET", target: "/", readLimit: 4096})
	if e.closedBy != "gateway" || e.complete || e.bodyBytes != 4096 {
		t.Errorf("closed by %q, complete %v, %d bytes", e.closedBy, e.complete, e.bodyBytes)
	}
	if took := e.took(); took > 10*time.Second {
		t.Errorf("seen after %v", took)
	}
}

func TestClientReadsSlowly(t *testing.T) {
	addr := plainServer(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, strings.Repeat("x", 50_000)) })
	e := get(t, addr, &wire{method: "GET", target: "/", readAll: true, readBPS: 100_000})
	if !e.complete || e.took() < 400*time.Millisecond {
		t.Errorf("complete %v after %v", e.complete, e.took())
	}
}

func TestClientReusesOnlyOpenConnections(t *testing.T) {
	addr := plainServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/close" {
			w.Header().Set("Connection", "close")
		}
	})
	ctx := t.Context()
	conn, err := dialH1(ctx, addr, &wire{readAll: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range []string{"/a", "/b", "/close"} {
		if !conn.idle() {
			t.Fatalf("request %d finds the connection closed", i)
		}
		e := newExchange(&wire{method: "GET", target: path, host: addr, declared: -1, readAll: true})
		if again := conn.do(ctx, e); again != (path != "/close") || e.status != 200 {
			t.Errorf("%s: status %d, reusable %v", path, e.status, again)
		}
	}
}

func TestClientOverHTTP2(t *testing.T) {
	addr := plainServer(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Proto", r.Proto)
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		if n != 3000 {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	client, err := newMuxClient("h2c", addr, "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer client.close()
	e := newExchange(&wire{method: "POST", target: "/", host: addr, body: make([]byte, 3000), declared: -1, readAll: true})
	client.do(t.Context(), e)
	if e.status != 200 || e.header.Get("X-Proto") != "HTTP/2.0" || e.trailer.Get("Grpc-Status") != "0" || !e.complete {
		t.Errorf("status %d %s, trailer %v, complete %v, %v", e.status, e.header.Get("X-Proto"), e.trailer, e.complete, e.err)
	}
}

// TestStalledBodyKeepsTheConnectionOpen shows that a stall is the server's to
// end: the client leaves only when it is told to.
func TestStalledBodyKeepsTheConnectionOpen(t *testing.T) {
	got := make(chan error, 1)
	addr := plainServer(t, func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		_, err := io.Copy(io.Discard, r.Body)
		got <- err
		w.WriteHeader(http.StatusRequestTimeout)
	})
	e := get(t, addr, &wire{method: "POST", target: "/", body: []byte("x"), declared: 100, then: "stall", readAll: true})
	if err := <-got; err == nil {
		t.Error("the server saw the end of a stalled body")
	}
	if e.status != http.StatusRequestTimeout {
		t.Errorf("status %d, %v", e.status, e.err)
	}
}
