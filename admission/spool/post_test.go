package spool

import (
	"context"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// post makes one real attempt at a receiver.
func postTo(t *testing.T, c HookConfig, d *Delivery) result {
	t.Helper()
	c.Name = hookName
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	r, err := newReceiver(&c)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	rule := newHeaderRule(nil, nil, nil)
	seal, err := newSealer(make([]byte, keySize))
	if err != nil {
		t.Fatal(err)
	}
	p, err := pack(hookName, &rule, seal, d, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return r.post(ctx, p.message(&c), c.Status)
}

// TestPostIsExact: the receiver gets the bytes, the kept headers, a declared
// length, the query, and nothing the gateway made up.
func TestPostIsExact(t *testing.T) {
	got := make(chan *http.Request, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		got <- r
		w.WriteHeader(202)
		_, _ = io.WriteString(w, strings.Repeat("x", 100_000))
	}))
	defer srv.Close()
	d := testDelivery("a", 1)
	d.Query, d.Path = "token=a%20b", "/project/a%2Fb"
	d.Header["X-Hub-Signature"] = []string{"sha1=00", "sha1=01"}
	d.Header["Cookie"] = []string{"x=y"}
	res := postTo(t, HookConfig{Deliver: srv.URL + "/ci?x=1"}, d)
	if res.outcome != outcomeDone || res.status != 202 || len(res.body) != answerBound {
		t.Fatalf("%+v", res)
	}
	r := <-got
	body, _ := io.ReadAll(r.Body)
	if string(body) != string(d.Body) || r.ContentLength != int64(len(d.Body)) || r.Method != "POST" {
		t.Errorf("%q, length %d, %s", body, r.ContentLength, r.Method)
	}
	if r.RequestURI != "/project/a%2Fb?token=a%20b" {
		t.Errorf("target %s", r.RequestURI)
	}
	r.Header.Del("Content-Length")
	if len(r.Header) != 3 || len(r.Header["X-Hub-Signature"]) != 2 || r.Header.Get("X-Github-Event") != "push" {
		t.Errorf("headers %v", r.Header)
	}
	if srv.URL != "http://"+r.Host {
		t.Errorf("host %s", r.Host)
	}
}

// TestPostUsesNoProxy: the environment's proxy is for others. (Go never uses it
// for loopback, so a request cannot show it here.)
func TestPostUsesNoProxy(t *testing.T) {
	r, err := newReceiver(&HookConfig{Name: hookName, Deliver: "http://ci.example/"})
	if err != nil {
		t.Fatal(err)
	}
	if r.client.Transport.(*http.Transport).Proxy != nil {
		t.Error("a proxy is consulted")
	}
}

// TestPostFollowsNoRedirect: a redirect is a refusal.
func TestPostFollowsNoRedirect(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ci" {
			t.Errorf("followed to %s", r.URL.Path)
		}
		http.Redirect(w, r, "/login", http.StatusFound)
	}))
	defer srv.Close()
	if res := postTo(t, HookConfig{Deliver: srv.URL + "/ci"}, testDelivery("a", 1)); res.outcome != outcomeNever || res.status != 302 {
		t.Errorf("%+v", res)
	}
}

// TestPostTLS: the receiver's certificate is checked against the configured
// authority; one that does not match is no attempt at all.
func TestPostTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) }))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // it reports the clients that refuse it
	srv.StartTLS()
	defer srv.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		tls  *TLSConfig
		want outcome
	}{
		{nil, outcomeUnreachable},
		{&TLSConfig{CAFile: ca}, outcomeDone},
		{&TLSConfig{CAFile: ca, ServerName: "example.com"}, outcomeDone},
		{&TLSConfig{CAFile: ca, ServerName: "other.test"}, outcomeUnreachable},
		{&TLSConfig{InsecureSkipVerify: true}, outcomeDone},
	} {
		if res := postTo(t, HookConfig{Deliver: srv.URL, TLS: test.tls}, testDelivery("a", 1)); res.outcome != test.want {
			t.Errorf("%+v: %+v", test.tls, res)
		}
	}
	bad := HookConfig{Name: "x", Deliver: srv.URL, TLS: &TLSConfig{CAFile: ca + "x"}}
	if _, err := newReceiver(&bad); err == nil {
		t.Error("a missing CA file was accepted")
	}
}

// TestPostWithoutAnswer: what never reached the receiver is told apart from
// what may have.
func TestPostWithoutAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + l.Addr().String()
	_ = l.Close()
	if res := postTo(t, HookConfig{Deliver: closed}, testDelivery("a", 1)); res.outcome != outcomeUnreachable || res.failure != "connection refused" {
		t.Errorf("%+v", res)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }))
	defer srv.Close()
	if res := postTo(t, HookConfig{Deliver: srv.URL}, testDelivery("a", 1)); res.outcome != outcomeAgain || res.failure != "connection closed" {
		t.Errorf("%+v", res)
	}
}

// TestLargeReplayIsStreamed: a body above joinBody goes from the file to the
// receiver unchanged.
func TestLargeReplayIsStreamed(t *testing.T) {
	got := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- string(b)
	}))
	defer srv.Close()
	s := open(t, testConfig(t))
	if err := s.SetHooks([]HookConfig{{Name: hookName, Deliver: srv.URL, Keep: KeepAlways}}); err != nil {
		t.Fatal(err)
	}
	d := testDelivery("a", 1)
	d.Body = []byte(strings.Repeat("0123456789abcdef", 200_000))
	if a, err := s.Accept(t.Context(), hookName, d); err != nil || !a.Kept {
		t.Fatalf("%+v %v", a, err)
	}
	if b := <-got; b != string(d.Body) {
		t.Errorf("%d bytes arrived", len(b))
	}
}

func TestJudge(t *testing.T) {
	for status, want := range map[int]Verdict{
		200: Done, 202: Done, 299: Done, 301: Never, 304: Never, 400: Never, 401: Never, 404: Never, 408: Again,
		409: Never, 410: Never, 422: Never, 425: Again, 429: Again, 500: Again, 501: Never, 502: Again, 503: Again, 504: Again, 505: Never,
	} {
		if got := Judge(status, nil); got != want {
			t.Errorf("%d: %s, want %s", status, got, want)
		}
	}
}
