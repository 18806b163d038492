package caddymodule

import (
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
)

// notCallersMax bounds the peers that are marked as proxies. Beyond it a peer
// is an ordinary caller.
const notCallersMax = 1024

// forwardingHeaders are the headers with which proxies name their clients.
var forwardingHeaders = []string{
	"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip", "X-Client-Ip",
}

// loadNotes is what one configuration learns about the proxies in front of it;
// the next configuration starts afresh. It is safe for concurrent use.
type loadNotes struct {
	logger *zap.Logger
	warned sync.Once

	marked atomic.Int32
	peers  sync.Map // netip.Addr → struct{}: peers that are not callers
}

func newLoadNotes(logger *zap.Logger) *loadNotes { return &loadNotes{logger: logger} }

// clientIP returns the function that names the client of a request by key,
// nil for the address that Caddy determined.
//
// When no proxy is trusted, a private or loopback peer that sends a forwarding
// header is not one caller but many: it is marked, and the function returns
// isCaller false for it from then on. Where any proxy is trusted, every peer
// is an ordinary caller.
func (n *loadNotes) clientIP(caller *Caller) func(*http.Request) (netip.Addr, bool) {
	if caller != nil && caller.Key != "" && caller.Key != clientIPPlaceholder && caller.Key != "{client_ip}" {
		return func(r *http.Request) (netip.Addr, bool) {
			// A value that is no address counts as the one caller "none", so
			// that a malformed value buys nothing.
			return parseAddr(placeholder(r, caller.Key)), true
		}
	}
	return func(r *http.Request) (netip.Addr, bool) {
		ip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
		addr := parseAddr(ip)
		return addr, !n.notCaller(r, addr)
	}
}

// notCaller reports whether the peer at addr is a proxy that nobody trusts to
// name its clients, marking it when this request shows so.
func (n *loadNotes) notCaller(r *http.Request, addr netip.Addr) bool {
	if addr.IsValid() && !isNear(addr) {
		return false
	}
	if trustsProxies(r) {
		return false
	}
	if _, ok := n.peers.Load(addr); ok {
		return true
	}
	if !forwards(r.Header) || n.marked.Load() >= notCallersMax {
		return false
	}
	if _, again := n.peers.LoadOrStore(addr, struct{}{}); !again {
		n.marked.Add(1)
	}
	n.warned.Do(func() {
		n.logger.Warn("a peer on this network forwards requests, but no trusted_proxies are set: " +
			"its clients cannot be told apart, so limits per caller are off for it; " +
			"set trusted_proxies and trusted_proxies_strict in the servers option")
	})
	return true
}

func forwards(h http.Header) bool {
	for _, name := range forwardingHeaders {
		if len(h[name]) > 0 {
			return true
		}
	}
	return false
}

// trustsProxies reports whether the server of r has any trusted proxy. A
// server that cannot be looked into counts as having one, because that makes
// the peer an ordinary caller.
func trustsProxies(r *http.Request) bool {
	s, ok := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	return !ok || s == nil || serverTrustsProxies(s)
}

// serverTrustsProxies looks for the provisioned source of trusted proxies.
// Caddy empties the exported raw field when it provisions a server, and the
// provisioned one is not exported; reading whether it is set is all that is
// done here. A Caddy without that field counts as trusting.
func serverTrustsProxies(s *caddyhttp.Server) bool {
	if s.TrustedProxiesRaw != nil || s.TrustedProxiesUnix {
		return true
	}
	f := reflect.ValueOf(s).Elem().FieldByName("trustedProxies")
	return !f.IsValid() || f.Kind() != reflect.Interface || !f.IsNil()
}

// isNear reports whether an address can only belong to this machine or its
// network, where a forwarding header comes from a proxy of the operator's.
func isNear(a netip.Addr) bool {
	return a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || sharedSpace.Contains(a)
}

// sharedSpace is the shared address space of RFC 6598.
var sharedSpace = netip.MustParsePrefix("100.64.0.0/10")

// parseAddr reads an address with or without port or zone; anything else is
// the zero Addr.
func parseAddr(s string) netip.Addr {
	s = strings.TrimSpace(s)
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone("")
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap().WithZone("")
}
