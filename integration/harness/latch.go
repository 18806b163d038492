package harness

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// LatchHeader makes a [Latch] keep a request until it is released. Its value is free.
const LatchHeader = "X-Latch"

// Latch stands between the gateway and an upstream, passes everything on, and keeps a request that carries [LatchHeader]
// unanswered until Release.
type Latch struct {
	Addr    string
	release chan struct{}
	once    sync.Once
	mu      sync.Mutex // protects kept
	kept    int
}

// StartLatch starts a latch in front of target.
func StartLatch(tb testing.TB, target string) *Latch {
	tb.Helper()
	l := &Latch{release: make(chan struct{})}
	proxy := NewForwarder(target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(LatchHeader) != "" && !l.keep(r) {
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	tb.Cleanup(func() {
		l.Release()
		server.Close()
	})
	l.Addr = server.Listener.Addr().String()
	return l
}

// keep blocks until the release; it is false when the client left before.
func (l *Latch) keep(r *http.Request) bool {
	l.count(1)
	defer l.count(-1)
	select {
	case <-l.release:
		return true
	case <-r.Context().Done():
		return false
	}
}

func (l *Latch) count(by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept += by
}

// WaitKept waits until exactly n requests are kept.
func (l *Latch) WaitKept(tb testing.TB, n int) {
	tb.Helper()
	Eventually(tb, 30*time.Second, fmt.Sprintf("%d requests kept by the latch", n), func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.kept != n {
			return fmt.Errorf("%d are", l.kept)
		}
		return nil
	})
}

// Release lets every kept request go on, and every later one pass.
func (l *Latch) Release() { l.once.Do(func() { close(l.release) }) }
