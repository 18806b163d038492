package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"
)

// holdHeader makes the upstream keep a request until its client leaves.
const holdHeader = "X-Hold"

// gitPath is what the measured requests ask for: class anonymous, any server.
const gitPath = "/bench.git/objects/info/packs"

// startUpstream starts a server that answers three bytes at once.
func startUpstream(ctx context.Context) (addr string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(holdHeader) != "" {
			select {
			case <-r.Context().Done():
			case <-ctx.Done():
			}
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})}
	go func() { _ = s.Serve(l) }()
	return l.Addr().String(), func() { _ = s.Close() }, nil
}
