package spool

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"syscall"
	"time"
)

// receiver is the client of one hook's deliver URL. It follows no redirect,
// uses no proxy of the environment and adds no header of its own.
type receiver struct {
	url    url.URL
	client http.Client
}

func newReceiver(c *HookConfig) (*receiver, error) {
	u, err := url.Parse(c.Deliver)
	if err != nil {
		return nil, fmt.Errorf("spool: hook %q: deliver is not a URL", c.Name)
	}
	r := &receiver{url: *u}
	r.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	r.client.Transport = c.Transport
	if c.Transport == nil {
		conf, err := c.TLS.build()
		if err != nil {
			return nil, fmt.Errorf("spool: hook %q: %w", c.Name, err)
		}
		r.client.Transport = &http.Transport{
			Proxy:               nil,
			DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			TLSClientConfig:     conf,
			TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConnsPerHost: c.permits(),
			IdleConnTimeout:     30 * time.Second,
			DisableCompression:  true,
			ForceAttemptHTTP2:   true,
		}
	}
	return r, nil
}

func (c *TLSConfig) build() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if c == nil {
		return conf, nil
	}
	conf.ServerName, conf.InsecureSkipVerify = c.ServerName, c.InsecureSkipVerify
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, err
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file %q holds no certificate", c.CAFile)
		}
	}
	if c.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, err
		}
		conf.Certificates = []tls.Certificate{cert}
	}
	return conf, nil
}

func (r *receiver) close() { r.client.CloseIdleConnections() }

// outcome is how an attempt ended. The set is closed.
type outcome string

const (
	outcomeDone        outcome = "delivered"
	outcomeAgain       outcome = "failed"      // counted against the delivery
	outcomeNever       outcome = "refused"     // for good
	outcomeUnreachable outcome = "unreachable" // no connection: not counted
	outcomeStopped     outcome = "stopped"     // the spool closed: says nothing
)

// result is what an attempt gave.
type result struct {
	outcome     outcome
	status      int    // 0 = no answer
	failure     string // without an answer: timeout, reset, unreachable, … closed set
	dead        DeadReason
	contentType string
	body        []byte // at most answerBound
}

// answerBound is how much of a receiver's answer is passed on.
const answerBound = 4 << 10

func (r *result) text() string {
	if r.status != 0 {
		return "status " + strconv.Itoa(r.status)
	}
	return r.failure
}

// message is one request to a receiver.
type message struct {
	header      http.Header
	path, query string
	size        int64
	body        func() io.Reader // may be called again when a kept-alive connection was closed
}

// post makes one attempt.
func (r *receiver) post(ctx context.Context, m *message, own map[string]Verdict) result {
	u := r.url
	if m.path != "" {
		if p, err := url.PathUnescape(m.path); err == nil {
			u.Path, u.RawPath = p, m.path
		}
	}
	if m.query != "" {
		u.RawQuery = m.query
	}
	req := (&http.Request{
		Method: http.MethodPost, URL: &u, Host: u.Host, ContentLength: m.size,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: maps.Clone(m.header),
	}).WithContext(ctx)
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header["User-Agent"] = []string{""} // none, rather than Go's own
	}
	if m.size > 0 {
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(m.body()), nil }
		req.Body, _ = req.GetBody()
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return failed(ctx, err)
	}
	defer resp.Body.Close()
	var answer bytes.Buffer
	_, _ = io.CopyN(&answer, resp.Body, answerBound) // the status has decided
	_, _ = io.CopyN(io.Discard, resp.Body, 256<<10)  // so that the connection can be used again
	res := result{status: resp.StatusCode, contentType: resp.Header.Get("Content-Type"), body: answer.Bytes()}
	switch Judge(resp.StatusCode, own) {
	case Done:
		res.outcome = outcomeDone
	case Again:
		res.outcome = outcomeAgain
	default:
		res.outcome = outcomeNever
	}
	return res
}

// failed sorts an attempt without an answer. Error texts hold the URL, so
// none is kept.
func failed(ctx context.Context, err error) result {
	var dial *net.OpError
	var dns *net.DNSError
	var record tls.RecordHeaderError
	var verify *tls.CertificateVerificationError
	switch {
	case errors.Is(context.Cause(ctx), context.Canceled):
		return result{outcome: outcomeStopped, failure: "stopped"}
	case errors.As(err, &dns):
		return result{outcome: outcomeUnreachable, failure: "name not resolved"}
	case errors.As(err, &dial) && dial.Op == "dial":
		if errors.Is(err, syscall.ECONNREFUSED) {
			return result{outcome: outcomeUnreachable, failure: "connection refused"}
		}
		return result{outcome: outcomeUnreachable, failure: "no connection"}
	case errors.As(err, &verify), errors.As(err, &record):
		return result{outcome: outcomeUnreachable, failure: "tls"}
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return result{outcome: outcomeAgain, failure: "timeout"}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return result{outcome: outcomeAgain, failure: "connection closed"}
	}
	return result{outcome: outcomeAgain, failure: "no answer"}
}
