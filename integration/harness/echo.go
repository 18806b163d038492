package harness

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Echo is an upstream that answers with everything it was sent, so that two answers are equal only when the requests that
// reached it were. The same request always gets the same bytes: it has no clock.
//
// The query chooses the answer: status=<n>, size=<n> (a body of that many bytes with its length), chunked, trailer. A path
// ending in /events is an event stream whose events are sent one by one by [Echo.Send]; a request to upgrade is switched
// over and its bytes are sent back.
type Echo struct {
	Addr   string
	events chan string
}

// StartEcho starts an upstream; it speaks HTTP/1.1, and HTTP/2 without TLS.
func StartEcho(tb testing.TB) *Echo {
	tb.Helper()
	e := &Echo{events: make(chan string)}
	server := httptest.NewUnstartedServer(e)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	tb.Cleanup(server.Close)
	e.Addr = server.Listener.Addr().String()
	return e
}

// Send lets the open event stream send one event; "" ends the stream. It blocks until a stream takes it.
func (e *Echo) Send(event string) { e.events <- event }

// ServeHTTP answers with what it got.
func (e *Echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Upgrade") != "":
		upgrade(w, r)
	case strings.HasSuffix(r.URL.Path, "/events"):
		e.stream(w, r)
	default:
		answerEcho(w, r)
	}
}

func answerEcho(w http.ResponseWriter, r *http.Request) {
	text := describe(r)
	q := r.URL.Query()
	h := w.Header()
	h.Set("Date", "Thu, 01 Jan 2026 00:00:00 GMT")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Add("Set-Cookie", "a=1; Path=/")
	h.Add("Set-Cookie", "b=2; Path=/; HttpOnly")
	h.Set("ETag", `"echo"`)
	status := http.StatusOK
	if n, err := strconv.Atoi(q.Get("status")); err == nil {
		status = n
	}
	if status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="https://git.test/token",service="registry"`)
	}
	if n, err := strconv.Atoi(q.Get("size")); err == nil {
		text += strings.Repeat("x", n)
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		h.Set("Content-Type", "application/grpc")
		h.Set("Trailer", "Grpc-Status, Grpc-Message")
		defer func() { h.Set("Grpc-Status", "0"); h.Set("Grpc-Message", "fine") }()
	}
	if q.Has("chunked") {
		w.WriteHeader(status)
		http.NewResponseController(w).Flush()
	} else if status != http.StatusNoContent && status != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(text)))
		w.WriteHeader(status)
	} else {
		w.WriteHeader(status)
		return
	}
	io.WriteString(w, text)
}

// describe writes down all of a request: its lines in a fixed order, and length and digest of its body.
func describe(r *http.Request) string {
	var b strings.Builder
	digest := sha256.New()
	n, err := io.Copy(digest, r.Body)
	fmt.Fprintf(&b, "%s %s %s\nhost %s\nlength %d %v\n", r.Method, r.RequestURI, r.Proto, r.Host, r.ContentLength, r.TransferEncoding)
	names := make([]string, 0, len(r.Header))
	for name := range r.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range r.Header[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	fmt.Fprintf(&b, "body %d %x %v\n", n, digest.Sum(nil), err)
	return b.String()
}

func (e *Echo) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Date", "Thu, 01 Jan 2026 00:00:00 GMT")
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	fmt.Fprintf(w, ": %q\n\n", describe(r))
	control.Flush()
	for {
		select {
		case event := <-e.events:
			if event == "" {
				return
			}
			fmt.Fprintf(w, "data: %s\n\n", event)
			control.Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func upgrade(w http.ResponseWriter, r *http.Request) {
	text := describe(r)
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Echo: %q\r\n\r\n", r.Header.Get("Upgrade"), text)
	io.Copy(conn, buffered)
}
