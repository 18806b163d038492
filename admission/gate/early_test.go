package gate

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// TestEarlyAnswerEndsTheConnection: an upstream that answers before it has read
// the upload must not let the rest of it be taken for the next request.
func TestEarlyAnswerEndsTheConnection(t *testing.T) {
	hidden := "GET /pub.git/info/refs?service=git-upload-pack HTTP/1.1\r\nHost: x\r\n\r\n"
	// A proxy's transport closes the upload it gives up on before the answer is
	// written; only then does net/http keep the connection.
	early := func(w http.ResponseWriter, r *http.Request) error {
		_ = r.Body.Close()
		w.Header().Set("WWW-Authenticate", "Basic")
		w.WriteHeader(http.StatusUnauthorized)
		return nil
	}
	for _, head := range []string{"Content-Length: %d\r\n", "Transfer-Encoding: chunked\r\n"} {
		s := serve(t, admission.Config{}, Options{}, early)
		// Caddy wraps every body, which hides it from net/http.
		wrapped := s.Config.Handler
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = struct{ io.ReadCloser }{r.Body}
			wrapped.ServeHTTP(w, r)
		})
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		body := strings.Repeat(hidden, 600<<10/len(hidden))
		if strings.HasPrefix(head, "Content") {
			head = fmt.Sprintf(head, len(body))
		} else {
			body = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
		}
		go func() {
			_, _ = io.WriteString(c, "POST "+pushRPC+" HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-git-receive-pack-request\r\n"+head+"\r\n"+body)
		}()
		rd := bufio.NewReader(c)
		r, err := http.ReadResponse(rd, nil)
		if err != nil || r.StatusCode != http.StatusUnauthorized || !r.Close {
			t.Fatalf("first answer: %v %v", r, err)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		if r, err := http.ReadResponse(rd, nil); err == nil {
			t.Errorf("%q: part of the body was answered as a request: %d", head, r.StatusCode)
		}
		_ = c.Close()
	}
}

// A request without a body keeps its connection, also when its body is wrapped.
func TestAnswerToARequestWithoutBodyKeepsTheConnection(t *testing.T) {
	s := serve(t, admission.Config{}, Options{}, func(w http.ResponseWriter, r *http.Request) error {
		if r.Method == http.MethodPost { // nobody reads the body of a GET
			_, _ = io.Copy(io.Discard, r.Body)
		}
		w.WriteHeader(http.StatusOK)
		return nil
	})
	wrapped := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = struct{ io.ReadCloser }{r.Body}
		wrapped.ServeHTTP(w, r)
	})
	if r, _ := s.do(t, ask{path: readRefs}); r.StatusCode != http.StatusOK || r.Close {
		t.Errorf("%d, connection closed: %v", r.StatusCode, r.Close)
	}
	if r, _ := s.do(t, ask{method: http.MethodPost, path: pushRPC, body: "0000", user: "dev", pass: "pw"}); r.StatusCode != http.StatusOK || r.Close {
		t.Errorf("%d after the whole body was read, connection closed: %v", r.StatusCode, r.Close)
	}
}

// TestTheEndOfAnUploadStaysItsEnd: a transport looks for the end of a body once
// more after the answer has begun, when net/http has closed the body. What it
// reads then must be the end, not an error that breaks the answer off.
func TestTheEndOfAnUploadStaysItsEnd(t *testing.T) {
	type read struct {
		n   int
		err error
	}
	again := make(chan read, 1)
	s := serve(t, admission.Config{}, Options{}, func(w http.ResponseWriter, r *http.Request) error {
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, 4))
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		n, err := r.Body.Read(make([]byte, 1))
		again <- read{n, err}
		return nil
	})
	s.do(t, ask{method: http.MethodPost, path: pushRPC, body: "0000", user: "dev", pass: "pw"})
	if got := <-again; got != (read{0, io.EOF}) {
		t.Errorf("%d bytes and %v, want the end", got.n, got.err)
	}
}
