package cases

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// upstream is one fake server behind the gateway. It speaks HTTP/1.1 and h2c
// on a loopback port that stays its own until close.
type upstream struct {
	name   string
	addr   string
	ledger *ledger
	git    *gitServer // nil without git-http

	mu      sync.Mutex // protects what follows
	normal  behaviour  // what it does unless a request says otherwise
	server  *http.Server
	closing context.CancelFunc
}

// newUpstream starts a server; with "connrefused" its port stays closed until
// the behaviour changes.
func newUpstream(name string, l *ledger, normal behaviour) (*upstream, error) {
	u := &upstream{name: name, addr: freeAddress(), ledger: l}
	return u, u.become(normal)
}

// become changes the default behaviour.
func (u *upstream) become(normal behaviour) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.normal = normal
	if normal.has(doRefuse) {
		u.stopLocked()
		return nil
	}
	if u.server != nil {
		return nil
	}
	listener, err := net.Listen("tcp", u.addr)
	if err != nil {
		return fmt.Errorf("upstream %s: %w", u.name, err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	ctx, cancel := context.WithCancel(context.Background())
	u.closing = cancel
	u.server = &http.Server{Handler: u, Protocols: protocols, BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog: quiet, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000}}
	go u.server.Serve(listener)
	return nil
}

func (u *upstream) stopLocked() {
	if u.server != nil {
		u.closing()
		u.server.Close()
		u.server = nil
	}
}

func (u *upstream) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stopLocked()
}

func (u *upstream) behaviourOf(c *call) behaviour {
	if c.request != nil && len(c.request.behaviour) > 0 {
		return c.request.behaviour
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.normal
}

// ServeHTTP implements http.Handler.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := u.ledger.begin(u.name, r)
	finished := false
	defer func() { u.ledger.finish(c, finished) }()
	b := u.behaviourOf(c)
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") && !b.has(doStatus) && !b.has(doRefuse) && !b.has(doHold) {
		finished = echoWebSocket(w, r)
		return
	}
	body := newBodyRecorder(u.ledger, c, r.Body)
	r.Body = body
	if !b.early() {
		if _, err := io.Copy(io.Discard, body); err != nil {
			return
		}
	}
	p := &play{upstream: u, call: c, w: w, r: r, flow: http.NewResponseController(w)}
	finished = p.run(b)
}

// bodyRecorder notes size and digest of what is read.
type bodyRecorder struct {
	io.ReadCloser
	ledger *ledger
	call   *call
	hash   interface {
		io.Writer
		Sum([]byte) []byte
	}
	n int64
}

func newBodyRecorder(l *ledger, c *call, body io.ReadCloser) *bodyRecorder {
	return &bodyRecorder{ReadCloser: body, ledger: l, call: c, hash: sha256.New()}
}

// Read implements io.Reader.
func (b *bodyRecorder) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.hash.Write(p[:n])
	b.n += int64(n)
	b.ledger.update(func() {
		b.call.bodyBytes = b.n
		if err == io.EOF {
			b.call.bodyComplete = true
			copy(b.call.bodySHA[:], b.hash.Sum(nil))
		}
	})
	return n, err
}

// pause waits unless ctx ends first; it reports whether the whole time passed.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
