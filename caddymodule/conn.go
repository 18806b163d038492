package caddymodule

import (
	"context"
	"net"
	"net/http"
	"syscall"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// connKey is where a request's context has its connection.
type connKey struct{}

// knowConnections lets the server that this handler belongs to put its
// connections into the contexts of their requests. Doing it again is harmless.
func knowConnections(ctx caddy.Context) {
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		server.RegisterConnContext(func(ctx context.Context, c net.Conn) context.Context {
			if ctx.Value(connKey{}) != nil {
				return ctx
			}
			return context.WithValue(ctx, connKey{}, c)
		})
	}
}

// taken implements gate.Options.Taken. A connection that a listener wrapper has
// hidden says nothing.
func taken(r *http.Request) func() (int64, bool) {
	c, _ := r.Context().Value(connKey{}).(net.Conn)
	if tls, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = tls.NetConn()
	}
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return func() (int64, bool) { return acknowledged(raw) }
}
