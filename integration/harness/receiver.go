package harness

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// Receiver is a worker behind the gateway that keeps every request it is handed, body and all. It answers 200, or what Answer
// says, and can hold requests back.
type Receiver struct {
	Addr   string
	Answer func(r *http.Request) int // nil: 200

	mu       sync.Mutex // protects what is below
	got      []Received
	waiting  int
	released chan struct{} // nil: nothing is held
}

// Received is one request as the worker saw it.
type Received struct {
	Method, URI string
	Header      http.Header
	Length      int64
	Body        []byte
}

// StartReceiver starts a worker.
func StartReceiver(tb testing.TB) *Receiver {
	tb.Helper()
	r := &Receiver{}
	server := httptest.NewServer(r)
	tb.Cleanup(func() {
		r.Release()
		server.Close()
	})
	r.Addr = server.Listener.Addr().String()
	return r
}

// Hold makes the worker keep requests unanswered, after it has read their bodies, until Release.
func (v *Receiver) Hold() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.released == nil {
		v.released = make(chan struct{})
	}
}

// Release answers what is held and everything that comes later.
func (v *Receiver) Release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.released != nil {
		close(v.released)
		v.released = nil
	}
}

// ServeHTTP keeps r and answers it.
func (v *Receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the gateway hung up: nothing arrived
	}
	v.mu.Lock()
	v.got = append(v.got, Received{r.Method, r.RequestURI, r.Header.Clone(), r.ContentLength, body})
	released := v.released
	if released != nil {
		v.waiting++
	}
	v.mu.Unlock()
	if released != nil {
		select {
		case <-released:
		case <-r.Context().Done():
		}
		v.mu.Lock()
		v.waiting--
		v.mu.Unlock()
	}
	status := http.StatusOK
	if v.Answer != nil {
		status = v.Answer(r)
	}
	w.WriteHeader(status)
}

// Count is how many requests arrived whole.
func (v *Receiver) Count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.got)
}

// Waiting is how many requests are held now.
func (v *Receiver) Waiting() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.waiting
}

// All returns the requests in the order in which they arrived.
func (v *Receiver) All() []Received {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]Received(nil), v.got...)
}
