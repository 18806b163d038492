package caddymodule

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
)

// TestTaken: what a client has taken of an answer is known for plain and for TLS connections, and never for a connection
// that a wrapper hides.
func TestTaken(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Logf("%s does not say what a peer has acknowledged; the stall limit then counts whole writes", runtime.GOOS)
		return
	}
	for _, c := range []struct {
		name  string
		start func(*httptest.Server)
	}{{"plain", (*httptest.Server).Start}, {"TLS", (*httptest.Server).StartTLS}} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ask := taken(r)
				if ask == nil {
					t.Error("nobody knows what the client has taken")
					return
				}
				_ = http.NewResponseController(w).EnableFullDuplex()
				before, ok := ask()
				_, _ = w.Write(make([]byte, 1<<20))
				_ = http.NewResponseController(w).Flush()
				_, _ = io.ReadAll(r.Body) // ends when the client has read the whole MiB
				if after, still := ask(); !ok || !still || after-before < 1<<20 {
					t.Errorf("from %d (%v) to %d (%v), want at least a MiB more", before, ok, after, still)
				}
			}))
			s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
			c.start(s)
			defer s.Close()
			body, end := io.Pipe()
			resp, err := s.Client().Post(s.URL, "text/plain", body)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if _, err := io.ReadFull(resp.Body, make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
			end.Close()
			_, _ = io.ReadAll(resp.Body)
		})
	}
	hidden := httptest.NewRequest("GET", "/", nil)
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if taken(hidden.WithContext(context.WithValue(hidden.Context(), connKey{}, a))) != nil || taken(hidden) != nil {
		t.Error("a connection without a socket says what was taken")
	}
}
