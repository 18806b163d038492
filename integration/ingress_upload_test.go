package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// What net/http may take of a refused upload from its connection: 257 KiB that it drains, and what fits into its buffer of
// 4 KiB. On HTTP/2 the client may fill the window that the server granted before it saw the request.
const (
	drained = 257<<10 + 4<<10
	window  = 1 << 20
)

// uploader sends one upload with a bad header and returns how long its refusal took.
type uploader func(addr string) (time.Duration, error)

// TestBadUploadIsNotRead sends 25 MiB uploads whose signature header is missing, by length and in chunks, with and without
// Expect, at once and in a trickle, over HTTP/1.1 and HTTP/2, four at a time. Every one of the clients sees the 401, in the middle within
// 250 ms; the process reads at most what net/http drains; no bucket changes.
func TestBadUploadIsNotRead(t *testing.T) {
	const clients = 20 // of each kind
	worker := harness.StartReceiver(t)
	s := startIngress(t, worker.Addr, slowBudgets+githubHook(t, "/hooks/ci"))
	bad := func(length int64, more ...string) string {
		return strings.Replace(delivery("/hooks/ci", "", length, more...), "X-Hub-Signature-256", "X-Unrelated", 1)
	}
	for _, k := range []struct {
		name   string
		most   int64
		upload uploader
	}{
		{"length", drained, upload1(bad(uploadSize), zeroBytes)},
		{"chunked", drained, upload1(bad(-1), zeroChunks)},
		{"length, Expect", 0, upload1(bad(uploadSize, "Expect: 100-continue"), nil)},
		{"chunked, Expect", 0, upload1(bad(-1, "Expect: 100-continue"), nil)},
		{"length, trickled", 0, upload1(bad(uploadSize), trickle(""))},
		{"chunked, trickled", 0, upload1(bad(-1), trickle("1\r\n0\r\n"))},
		{"small, withheld", 0, upload1(bad(20), nil)},
		{"HTTP/2, length", window, upload2(uploadSize, false, endless{})},
		{"HTTP/2, chunked", window, upload2(-1, false, endless{})},
		{"HTTP/2, length, Expect", 0, upload2(uploadSize, true, endless{})},
		{"HTTP/2, chunked, Expect", 0, upload2(-1, true, endless{})},
		{"HTTP/2, length, trickled", 0, upload2(uploadSize, false, dripping{})},
		{"HTTP/2, chunked, trickled", 0, upload2(-1, false, dripping{})},
	} {
		t.Run(k.name, func(t *testing.T) {
			before, read := s.ingressState(t, "webhook"), s.BytesRead(t)
			took := make([]time.Duration, clients)
			var sending sync.WaitGroup
			for first := range 4 {
				sending.Go(func() {
					for i := first; i < clients; i += 4 {
						d, err := k.upload(s.addr)
						if err != nil {
							t.Errorf("client %d saw no refusal: %v", i, err)
						}
						took[i] = d
					}
				})
			}
			sending.Wait()
			read = s.BytesRead(t) - read
			slices.Sort(took)
			t.Logf("%d bytes read for each; answered in %v, at most %v", read/clients, took[clients/2], took[clients-1])
			if took[clients/2] > 250*time.Millisecond {
				t.Errorf("the refusal takes %v", took[clients/2])
			}
			if most := k.most + 2<<10; read/clients > most { // 2 KiB: the head, and the state that was asked for
				t.Errorf("%d bytes read for each upload, want at most %d", read/clients, most)
			}
			got := changeOf(before, s.ingressState(t, "webhook"), "webhook")
			if got.requests > 0 || got.bytes > 0 || got.inUse != 0 || got.webhooks["signature"] != clients || len(got.webhooks) != 1 {
				t.Errorf("%+v, want %d refused by their signature header and nothing spent", got, clients)
			}
		})
	}
	if n := worker.Count(); n != 0 {
		t.Errorf("the worker saw %d uploads", n)
	}
}

// upload1 sends head on HTTP/1.1 and, while it waits for the answer, a body.
func upload1(head string, body func(io.Writer)) uploader {
	return func(addr string) (time.Duration, error) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return 0, err
		}
		var sending sync.WaitGroup
		defer sending.Wait()
		defer c.Close()
		c.SetDeadline(time.Now().Add(30 * time.Second))
		start := time.Now()
		if _, err := io.WriteString(c, head); err != nil {
			return 0, err
		}
		if body != nil {
			sending.Go(func() { body(c) })
		}
		r, err := readReply(c)
		took := time.Since(start)
		switch {
		case err != nil:
			return took, err
		case r.StatusCode != http.StatusUnauthorized || r.proceeds > 0:
			return took, fmt.Errorf("%s after %d times 100", r.Status, r.proceeds)
		}
		return took, nil
	}
}

func zeroBytes(w io.Writer) {
	for range uploadSize / len(block) {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

func zeroChunks(w io.Writer) {
	for range uploadSize / len(block) {
		if _, err := fmt.Fprintf(w, "%x\r\n%s\r\n", len(block), block); err != nil {
			return
		}
	}
}

// trickle sends a little every 20 ms until the connection is closed.
func trickle(piece string) func(io.Writer) {
	if piece == "" {
		piece = "0"
	}
	return func(w io.Writer) {
		for range time.Tick(20 * time.Millisecond) {
			if _, err := io.WriteString(w, piece); err != nil {
				return
			}
		}
	}
}

// upload2 does the same on HTTP/2, each upload on a connection of its own.
func upload2(length int64, expect bool, body io.Reader) uploader {
	return func(addr string) (time.Duration, error) {
		transport := &http.Transport{Protocols: new(http.Protocols), ExpectContinueTimeout: 10 * time.Second}
		transport.Protocols.SetUnencryptedHTTP2(true)
		defer transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/hooks/ci", io.LimitReader(body, uploadSize))
		if err != nil {
			return 0, err
		}
		r.ContentLength = length
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Github-Event", "push")
		if expect {
			r.Header.Set("Expect", "100-continue")
		}
		start := time.Now()
		resp, err := transport.RoundTrip(r)
		took := time.Since(start)
		if err != nil {
			return took, err
		}
		defer resp.Body.Close()
		if resp.ProtoMajor != 2 || resp.StatusCode != http.StatusUnauthorized {
			return took, fmt.Errorf("%s %s", resp.Proto, resp.Status)
		}
		return took, nil
	}
}

// endless reads zeros for ever.
type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// dripping reads one zero every 20 ms for ever.
type dripping struct{}

func (dripping) Read(p []byte) (int, error) {
	<-time.After(20 * time.Millisecond)
	clear(p[:1])
	return 1, nil
}
