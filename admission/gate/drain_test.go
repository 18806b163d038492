package gate

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// A refusal takes at most what net/http drains once of a body, whether its
// length was declared or not, and the client sees the answer.
func TestRefusalTakesLittleOfABody(t *testing.T) {
	for _, head := range []string{"Content-Length: 104857600", "Transfer-Encoding: chunked"} {
		synctest.Test(t, func(t *testing.T) {
			policy, _ := admission.Config{WaitOff: true, Classes: map[string]*admission.ClassConfig{"anonymous": {Max: ptr(0)}}}.Compile()
			g, err := New(NewState(policy), Options{})
			if err != nil {
				t.Fatal(err)
			}
			l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
			srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Body = struct{ io.ReadCloser }{r.Body} // as Caddy does, which hides it from net/http
				_ = g.Serve(w, r, func(http.ResponseWriter, *http.Request) error { t.Error("reached the upstream"); return nil })
			})}
			go func() { _ = srv.Serve(l) }()
			client, server := net.Pipe()
			l.conns <- server
			var taken atomic.Int64
			go func() {
				_, _ = io.WriteString(client, "POST "+pushRPC+" HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-git-receive-pack-request\r\n"+head+"\r\n\r\n")
				piece := strings.Repeat("x", 4096)
				if strings.Contains(head, "chunked") {
					piece = fmt.Sprintf("%x\r\n%s\r\n", len(piece), piece)
				}
				for {
					n, err := io.WriteString(client, piece)
					taken.Add(int64(n))
					if err != nil {
						return
					}
				}
			}()
			r, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil || r.StatusCode != http.StatusServiceUnavailable {
				t.Fatalf("%s: %v %v", head, r, err)
			}
			if text, err := io.ReadAll(r.Body); err != nil || len(text) == 0 {
				t.Errorf("%s: the answer's body: %q %v", head, text, err)
			}
			time.Sleep(time.Second)
			_ = client.Close()
			synctest.Wait()
			if n := taken.Load(); n > 280<<10 {
				t.Errorf("%s: %d bytes were taken of a refused body", head, n)
			}
			_ = srv.Close()
			synctest.Wait()
		})
	}
}
