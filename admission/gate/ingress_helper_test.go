package gate

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/webhook"
)

const hookSecret = "a secret of reasonable length"

func githubHook(t testing.TB, path string) HookConfig {
	t.Helper()
	p, ok := webhook.Lookup("github")
	if !ok {
		t.Fatal("no profile github")
	}
	s, err := webhook.NewSecrets(hookSecret)
	if err != nil {
		t.Fatal(err)
	}
	return HookConfig{Path: path, Profile: p, Secrets: s}
}

// hookReceiver is the upstream: it notes what arrives and can hold requests.
type hookReceiver struct {
	mu     sync.Mutex
	bodies []string
	seen   []http.Header
	hold   chan struct{} // nil: answers at once
	status int
	err    error
	panics any
	in     int
	peak   int
}

func (u *hookReceiver) next(w http.ResponseWriter, r *http.Request) error {
	body, _ := io.ReadAll(r.Body)
	u.mu.Lock()
	u.bodies, u.seen = append(u.bodies, string(body)), append(u.seen, r.Header.Clone())
	u.in++
	u.peak = max(u.peak, u.in)
	hold, status, err, p := u.hold, u.status, u.err, u.panics
	u.mu.Unlock()
	defer func() { u.mu.Lock(); u.in--; u.mu.Unlock() }()
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
	if p != nil {
		panic(p)
	}
	if err != nil {
		return err
	}
	if status == 0 {
		status = http.StatusOK
	}
	w.WriteHeader(status)
	return nil
}

func (u *hookReceiver) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.bodies)
}

// ingressServer is a gate with an IngressConfig on an in-memory listener.
type ingressServer struct {
	t        testing.TB
	listener *pipeListener
	state    *State
	gate     *Gate
}

func newIngressGate(t testing.TB, cfg admission.Config, in IngressConfig) (*State, *Gate) {
	t.Helper()
	policy, problems := cfg.Compile()
	if policy == nil {
		t.Fatal(problems)
	}
	state := NewState(policy)
	g, err := New(state, Options{Ingress: &in, ClientIP: testAddr, StatusOf: func(err error) int {
		var s statusError
		if e, ok := err.(statusError); ok {
			s = e
		}
		return int(s)
	}})
	if err != nil {
		t.Fatal(err)
	}
	return state, g
}

type statusError int

func (e statusError) Error() string { return fmt.Sprint("status ", int(e)) }

func testAddr(r *http.Request) (netip.Addr, bool) {
	if a := r.Header.Get("X-Test-Addr"); a != "" {
		return netip.MustParseAddr(a), true
	}
	return netip.MustParseAddr("192.0.2.1"), true
}

// ingressBubble runs f with a server in a synctest bubble and checks that
// nothing is held at its end.
func ingressBubble(t *testing.T, cfg admission.Config, in func() IngressConfig, next Next, f func(t *testing.T, s *ingressServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &ingressServer{t: t, listener: &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}}
		s.state, s.gate = newIngressGate(t, cfg, in())
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := s.gate.Serve(w, r, next); err != nil {
				t.Errorf("Serve returned %v", err)
			}
		})}
		go func() { _ = srv.Serve(s.listener) }()
		f(t, s)
		_ = srv.Close()
		time.Sleep(10 * time.Second) // fake: lets lingering connections end
		synctest.Wait()
		s.idle()
	})
}

func (s *ingressServer) idle() {
	s.t.Helper()
	for _, c := range s.state.Controller.Snapshot().Classes {
		if c.InUse != 0 || c.Waiting != 0 {
			s.t.Errorf("class %s ends with %d in use, %d waiting", c.Class, c.InUse, c.Waiting)
		}
	}
	if n := len(s.state.Ingress.holds); n != 0 {
		s.t.Errorf("%d webhook holds at the end", n)
	}
}

// delivery is one request to a hook.
type delivery struct {
	path, addr, body string
	declared         int  // Content-Length when it differs from the body, 0 = the body's
	chunked          bool // no Content-Length
	forged           bool
	header           []string // further lines
}

func sign(body string) string {
	m := hmac.New(sha256.New, []byte(hookSecret))
	m.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(m.Sum(nil))
}

// head renders the request up to the body.
func (d delivery) head() string {
	if d.path == "" {
		d.path = "/hooks/ci"
	}
	sig := sign(d.body)
	if d.forged {
		sig = "sha256=" + strings.Repeat("0", 64)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-GitHub-Event: push\r\n"+
		"X-GitHub-Delivery: 72d3162e-cc78-11e3-81ab-4c9367dc0958\r\nX-Hub-Signature-256: %s\r\n", d.path, sig)
	switch {
	case d.chunked:
		b.WriteString("Transfer-Encoding: chunked\r\n")
	case d.declared > 0:
		fmt.Fprintf(&b, "Content-Length: %d\r\n", d.declared)
	default:
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(d.body))
	}
	if d.addr != "" {
		fmt.Fprintf(&b, "X-Test-Addr: %s\r\n", d.addr)
	}
	for _, h := range d.header {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n")
	return b.String()
}

func (d delivery) bytes() string {
	if d.chunked {
		return d.head() + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(d.body), d.body)
	}
	return d.head() + d.body
}

// open sends raw bytes on a new connection and returns it.
func (s *ingressServer) open(raw string) net.Conn {
	client, server := net.Pipe()
	select {
	case s.listener.conns <- server:
	case <-s.listener.done:
		_ = server.Close()
	}
	go func() { _, _ = io.WriteString(client, raw) }()
	return client
}

// send sends raw and returns the status and the body of the answer, 0 when
// there was none.
func (s *ingressServer) send(raw string) (int, string) {
	s.t.Helper()
	c := s.open(raw)
	defer c.Close()
	return status(s.t.(*testing.T), c)
}

// direct serves r without a server and reports how many bytes of its body were
// read.
func direct(g *Gate, r *http.Request, next Next) (*httptest.ResponseRecorder, *countingBody) {
	body := &countingBody{}
	if r.Body != nil {
		body.rest = r.Body
	}
	r.Body = body
	w := httptest.NewRecorder()
	_ = g.Serve(w, r, next)
	return w, body
}

type countingBody struct {
	rest io.ReadCloser
	read int
}

func (b *countingBody) Read(p []byte) (int, error) {
	b.read++
	if b.rest == nil {
		return 0, io.EOF
	}
	return b.rest.Read(p)
}

func (b *countingBody) Close() error { return nil }

// levels are the webhook group's buckets.
func levels(s *State, now time.Time) [2]float64 {
	r, b := s.Controller.Levels(admission.Webhook, now)
	return [2]float64{r, b}
}

func outcome(s *State, o HookOutcome) int64 { return s.Ingress.Snapshot().Webhooks[o.String()] }

func inUse(s *State, c admission.Class) int { return s.Controller.Snapshot().Classes[c].InUse }

func parse(t testing.TB, d delivery) *http.Request {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(d.bytes())))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// answerOf reads one answer with its headers.
func answerOf(t testing.TB, c net.Conn) (*http.Response, string) {
	t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(body)
}

var noSecrets webhook.Secrets

func woodpecker(t testing.TB) *webhook.Profile {
	t.Helper()
	p, ok := webhook.Lookup("woodpecker-hook")
	if !ok {
		t.Fatal("no profile woodpecker-hook")
	}
	return p
}

func mustPolicy(t testing.TB) *admission.Policy {
	t.Helper()
	p, problems := admission.Config{}.Compile()
	if p == nil {
		t.Fatal(problems)
	}
	return p
}
