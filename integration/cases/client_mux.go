package cases

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"time"

	"github.com/quic-go/quic-go/http3"
)

// muxClient sends exchanges over HTTP/2 or HTTP/3, many on one connection.
type muxClient struct {
	transport http.RoundTripper
	base      string // scheme and authority
	close     func()
	early     bool // send GET as 0-RTT data where the session allows it
}

// newMuxClient connects lazily to the gateway: h2c on its clear-text port, h2
// and h3 on its TLS port.
func newMuxClient(proto, plain, secure, peer string) (*muxClient, error) {
	roots := &tls.Config{InsecureSkipVerify: true, ServerName: tlsName} // the gateway's own throw-away authority
	switch proto {
	case "h3":
		roots.MinVersion = tls.VersionTLS13
		t := &http3.Transport{TLSClientConfig: roots}
		return &muxClient{transport: t, base: "https://" + secure, close: func() { t.Close() }}, nil
	case "h2", "h2c":
		t := &http.Transport{TLSClientConfig: roots, DialContext: dialer(peer, false).DialContext, DisableCompression: true,
			Protocols: new(http.Protocols), ExpectContinueTimeout: time.Second}
		c := &muxClient{transport: t, base: "https://" + secure, close: t.CloseIdleConnections}
		if proto == "h2c" {
			t.Protocols.SetUnencryptedHTTP2(true)
			c.base = "http://" + plain
		} else {
			t.Protocols.SetHTTP2(true)
		}
		return c, nil
	}
	return nil, fmt.Errorf("unknown proto %q", proto)
}

// tlsName is the server name of the gateway's TLS site.
const tlsName = "localhost"

// do runs one exchange.
func (c *muxClient) do(ctx context.Context, e *exchange) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.change(func() { e.abort = func(string) { cancel() } })
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders: func() { e.change(func() { e.launched = true }) },
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			e.change(func() { e.info = append(e.info, code) })
			return nil
		},
	})
	req, err := c.request(ctx, e)
	if err != nil {
		e.finish(err)
		return
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		e.change(func() { e.closedBy = endedBy(ctx) })
		e.finish(fmt.Errorf("no answer: %w", err))
		return
	}
	defer resp.Body.Close()
	e.head(resp.StatusCode, resp.Proto, resp.Header)
	e.finish(c.receive(ctx, e, resp))
}

func endedBy(ctx context.Context) string {
	if ctx.Err() != nil {
		return "client"
	}
	return "gateway"
}

func (c *muxClient) receive(ctx context.Context, e *exchange, resp *http.Response) error {
	err := e.receive(ctx, resp.Body)
	switch {
	case errors.Is(err, errStopped) && e.wire.follow:
		e.change(func() { e.closedBy = "client" })
		return nil
	case errors.Is(err, errStopped):
		return c.awaitReset(ctx, e, resp)
	case err != nil:
		e.change(func() { e.closedBy = endedBy(ctx) })
		return fmt.Errorf("answer cut: %w", err)
	}
	e.change(func() { e.complete, e.trailer = true, resp.Trailer })
	return nil
}

// awaitReset waits, without reading on, for the stream to be reset: a reset
// makes the next read fail at once, data would be returned by it. The read
// that ends the wait happens once a second and takes one byte.
func (c *muxClient) awaitReset(ctx context.Context, e *exchange, resp *http.Response) error {
	one := make([]byte, 1)
	for pause(ctx, time.Second) {
		if _, err := resp.Body.Read(one); err != nil && err != io.EOF {
			e.change(func() { e.closedBy = endedBy(ctx) })
			return nil
		}
	}
	return nil
}

func (c *muxClient) request(ctx context.Context, e *exchange) (*http.Request, error) {
	w := e.wire
	var body io.Reader
	if w.body != nil {
		body = &pacedBody{ctx: ctx, exchange: e, left: bytes.NewReader(w.body)}
	}
	req, err := http.NewRequestWithContext(ctx, w.method, c.base+w.target, body)
	if err != nil {
		return nil, err
	}
	if c.early {
		req.Method = http3.MethodGet0RTT
	}
	req.ContentLength = w.declared
	if w.body == nil {
		req.ContentLength = 0
	}
	if w.host != "" {
		req.Host = w.host
	}
	for _, h := range w.headers {
		switch strings.ToLower(h.Name) {
		case "connection", "transfer-encoding", "content-length": // not part of HTTP/2
		default:
			req.Header.Add(h.Name, h.Value)
		}
	}
	return req, nil
}

// pacedBody gives out a body at its rate and then stalls or breaks off where
// the request says so.
type pacedBody struct {
	ctx      context.Context
	exchange *exchange
	left     *bytes.Reader
}

// Read implements io.Reader.
func (b *pacedBody) Read(p []byte) (int, error) {
	w := b.exchange.wire
	if b.left.Len() == 0 {
		switch w.then {
		case "stall":
			<-b.ctx.Done()
			return 0, b.ctx.Err()
		case "close", "reset", "fin":
			return 0, io.ErrUnexpectedEOF
		}
		return 0, io.EOF
	}
	if w.rate > 0 {
		p = p[:min(len(p), max(1, int(w.rate/20)))]
		if !pause(b.ctx, time.Duration(float64(len(p))/w.rate*float64(time.Second))) {
			return 0, b.ctx.Err()
		}
	}
	n, err := b.left.Read(p)
	b.exchange.change(func() {
		b.exchange.sent += int64(n)
		b.exchange.taken = b.exchange.sent // HTTP/2 flow control hands out what the peer's library takes
	})
	return n, err
}
