package caddymodule

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// provisionedServer returns a server as a request finds it.
func provisionedServer(t *testing.T, options string) *caddyhttp.Server {
	t.Helper()
	raw, err := adapt("{\n admin off\n auto_https off\n persist_config off\n servers {\n" + options + "\n}\n}\n:0 {\n respond ok\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	var cfg caddy.Config
	if err := caddy.StrictUnmarshalJSON(raw, &cfg); err != nil {
		t.Fatal(err)
	}
	ctx, err := caddy.ProvisionContext(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	app, err := ctx.App("http")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range app.(*caddyhttp.App).Servers {
		return s
	}
	t.Fatal("no server")
	return nil
}

// request is a request as Caddy prepares it for handlers.
func request(s *caddyhttp.Server, peer string, header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://git.example.com/", nil)
	r.RemoteAddr = peer
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return caddyhttp.PrepareRequest(r, caddy.NewReplacer(), httptest.NewRecorder(), s)
}

func observed() (*zap.Logger, *observer.ObservedLogs) {
	core, logs := observer.New(zapcore.DebugLevel)
	return zap.New(core), logs
}

// TestNotACaller: without trusted proxies, a near peer that forwards is many
// callers, from its first forwarding header until the next load; a far one
// never is; one warning a load says what to set.
func TestNotACaller(t *testing.T) {
	s := provisionedServer(t, "")
	logger, logs := observed()
	clientIP := newLoadNotes(logger).clientIP(nil)
	steps := []struct {
		name, peer string
		header     []string
		addr       string
		isCaller   bool
	}{
		{"near, no header yet", "10.0.0.2:1000", nil, "10.0.0.2", true},
		{"near, forwarding", "10.0.0.2:1000", []string{"X-Forwarded-For", "203.0.113.9"}, "10.0.0.2", false},
		{"the same without the header", "10.0.0.2:1001", nil, "10.0.0.2", false},
		{"another near one", "10.0.0.3:1000", nil, "10.0.0.3", true},
		{"loopback, Forwarded", "127.0.0.1:5", []string{"Forwarded", "for=203.0.113.9"}, "127.0.0.1", false},
		{"IPv6 loopback, X-Real-Ip", "[::1]:5", []string{"X-Real-Ip", "203.0.113.9"}, "::1", false},
		{"unique local", "[fd00::1]:5", []string{"X-Forwarded-For", "203.0.113.9"}, "fd00::1", false},
		{"mapped IPv4", "[::ffff:10.0.0.9]:5", []string{"X-Forwarded-For", "203.0.113.9"}, "10.0.0.9", false},
		{"far, forwarding", "198.51.100.4:9", []string{"X-Forwarded-For", "203.0.113.9"}, "198.51.100.4", true},
		{"far again", "198.51.100.4:9", nil, "198.51.100.4", true},
	}
	for _, step := range steps {
		addr, isCaller := clientIP(request(s, step.peer, step.header...))
		if addr.String() != step.addr || isCaller != step.isCaller {
			t.Errorf("%s: %v %v, want %s %v", step.name, addr, isCaller, step.addr, step.isCaller)
		}
	}
	if n := logs.Len(); n != 1 {
		t.Errorf("%d warnings in one load, want 1", n)
	}
	if _, isCaller := newLoadNotes(logger).clientIP(nil)(request(s, "10.0.0.2:1000")); !isCaller {
		t.Error("the mark outlived the load")
	}
}

// TestTrustedProxies: where any proxy is trusted, everybody is a caller, and
// the address is the one Caddy determined.
func TestTrustedProxies(t *testing.T) {
	logger, logs := observed()
	s := provisionedServer(t, "trusted_proxies static 127.0.0.1/32\n trusted_proxies_strict")
	clientIP := newLoadNotes(logger).clientIP(nil)
	for _, c := range []struct{ peer, forwarded, addr string }{
		{"127.0.0.1:1", "203.0.113.9", "203.0.113.9"},
		{"127.0.0.1:1", "6.6.6.6, 203.0.113.9", "203.0.113.9"},
		{"10.0.0.2:1", "203.0.113.9", "10.0.0.2"},
		{"10.0.0.2:1", "", "10.0.0.2"},
	} {
		header := []string{"X-Forwarded-For", c.forwarded}
		if c.forwarded == "" {
			header = nil
		}
		addr, isCaller := clientIP(request(s, c.peer, header...))
		if addr.String() != c.addr || !isCaller {
			t.Errorf("%s forwarding %q: %v %v, want %s and a caller", c.peer, c.forwarded, addr, isCaller, c.addr)
		}
	}
	if logs.Len() != 0 {
		t.Errorf("warned: %v", logs.All())
	}
}

// TestServerTrustsProxies pins what is read from Caddy's server: it must keep
// telling the two apart in the pinned version.
func TestServerTrustsProxies(t *testing.T) {
	if serverTrustsProxies(provisionedServer(t, "")) {
		t.Error("a server without trusted proxies counts as having some")
	}
	if !serverTrustsProxies(provisionedServer(t, "trusted_proxies static 10.0.0.0/8")) {
		t.Error("a server with trusted proxies counts as having none")
	}
}

// TestMarkedPeersBounded: the marks are bounded; beyond the bound a peer is an
// ordinary caller.
func TestMarkedPeersBounded(t *testing.T) {
	s := provisionedServer(t, "")
	n := newLoadNotes(zap.NewNop())
	clientIP := n.clientIP(nil)
	addr := netip.MustParseAddr("10.0.0.1")
	marked := 0
	for range notCallersMax + 100 {
		if _, isCaller := clientIP(request(s, netip.AddrPortFrom(addr, 1).String(), "X-Forwarded-For", "1.2.3.4")); !isCaller {
			marked++
		}
		addr = addr.Next()
	}
	if marked != notCallersMax {
		t.Errorf("%d peers marked, want %d", marked, notCallersMax)
	}
}

// TestCallerPlaceholder: a caller key of the operator's is read as an address;
// what is none is one caller.
func TestCallerPlaceholder(t *testing.T) {
	s := provisionedServer(t, "")
	clientIP := newLoadNotes(zap.NewNop()).clientIP(&Caller{Key: "{http.request.header.X-Client}"})
	for value, want := range map[string]netip.Addr{
		"203.0.113.9":        netip.MustParseAddr("203.0.113.9"),
		"203.0.113.9:80":     netip.MustParseAddr("203.0.113.9"),
		"[2001:db8::1]:80":   netip.MustParseAddr("2001:db8::1"),
		"::ffff:203.0.113.9": netip.MustParseAddr("203.0.113.9"),
		"fe80::1%eth0":       netip.MustParseAddr("fe80::1"),
		"not an address":     {},
		"":                   {},
	} {
		addr, isCaller := clientIP(request(s, "198.51.100.1:1", "X-Client", value))
		if addr != want || !isCaller {
			t.Errorf("%q: %v %v, want %v and a caller", value, addr, isCaller, want)
		}
	}
	r := request(s, "198.51.100.1:1").WithContext(context.Background())
	if addr, _ := clientIP(r); addr.IsValid() {
		t.Errorf("without a replacer: %v", addr)
	}
}
