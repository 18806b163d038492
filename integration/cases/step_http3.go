package cases

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// http3Resume makes one request on a fresh QUIC connection and then n requests
// each on a resumed one, early where the server allows it. Early data in quic-go
// 0.63 has a data race of its own (connection.go, handleTransportParameters against
// newFlowController), so the runner is not built with the race detector where a
// case may ask for it.
func (w *world) http3Resume(ctx context.Context, s *Step) error {
	does := behaviour(nil)
	if s.Upstream != "" {
		var err error
		if does, err = parseBehaviour(s.Upstream); err != nil {
			return err
		}
	}
	round := w.book.begin(s.Name)
	defer w.book.end(s.Name)
	cache := tls.NewLRUClientSessionCache(8)
	for i := range s.count() + 1 {
		if err := w.resumeOne(ctx, s, i, round, does, cache); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) resumeOne(ctx context.Context, s *Step, i, round int, does behaviour, cache tls.ClientSessionCache) error {
	id := fmt.Sprintf("%s#%d.%d", s.Name, round, i)
	wire, err := w.tokens.build(s, i, id)
	if err != nil {
		return err
	}
	if wire.host == w.tokens.gateway {
		wire.host = tlsName + ":" + port(w.gateway.secure)
	}
	early := i > 0 && (s.EarlyData == nil || *s.EarlyData) && (wire.method == http.MethodGet || wire.method == http.MethodHead)
	transport := &http3.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: tlsName, ClientSessionCache: cache, MinVersion: tls.VersionTLS13},
		QUICConfig:      &quic.Config{},
	}
	if !early {
		transport.Dial = quic.DialAddr // whole handshake first
	}
	defer transport.Close()
	client := &muxClient{transport: transport, base: "https://" + w.gateway.secure}
	if early {
		client.early = true
	}
	w.ledger.register(&sent{id: id, step: s.Name, round: round, behaviour: does, wire: wire, flow: wire.flow(), at: time.Now()})
	e := newExchange(wire)
	w.book.note(s.Name, e)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	client.do(ctx, e)
	pause(ctx, 50*time.Millisecond) // the session ticket follows the answer
	return nil
}
