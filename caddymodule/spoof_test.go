package caddymodule

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// One attacker with a forged address in every request holds the places of one
// caller, whether a proxy in front names him or nobody is trusted to. Behind a
// proxy that nobody trusts to name its clients he is one of many who cannot be
// told apart: the class's limit holds, and no trusted network opens.
func TestSpoofedForwardedFor(t *testing.T) {
	const site = `admission spoofed {
		wait off
		trusted_networks 192.0.2.0/24
		class anonymous {
			max 10
			caller_max 4
		}
		class discovery {
			max 16
			caller_max 4
		}
	}
	test_upstream`
	const trusted = "trusted_proxies static 127.0.0.1/32\n\t\ttrusted_proxies_strict\n"
	for name, c := range map[string]struct {
		servers string // in place of trusting the test's own address
		appends string // what the proxy in front appends
		want    int
	}{
		"a trusted proxy":                     {trusted, ", 203.0.113.9", 4},
		"a peer that is not a trusted proxy":  {strings.Replace(trusted, "127.0.0.1/32", "10.0.0.0/8", 1), "", 4},
		"a proxy nobody trusts, on this host": {"", ", 203.0.113.9", 10},
		"the same, and it appends nothing":    {"", "", 10},
		"a trusted proxy, an address in IPv6": {trusted, ", 2001:db8:1:2::9", 4},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGitServer()
			s := start(t, site, g.serve)
			raw, err := adapt(strings.Replace(s.caddyfile(site), trusted, c.servers, 1))
			if err != nil {
				t.Fatal(err)
			}
			if err := caddy.Stop(); err != nil { // so that no connection meets the old server
				t.Fatal(err)
			}
			if err := caddy.Load(raw, true); err != nil {
				t.Fatal(err)
			}
			const requests = 40
			release, answers := g.holdOn(readRPC), make(chan int, requests)
			for i := range requests {
				forged := http.Header{"X-Forwarded-For": {fmt.Sprintf("192.0.2.%d%s", i+1, c.appends)}}
				go func() {
					resp, _, err := s.try(ask{method: http.MethodPost, path: readRPC, body: "0000", header: forged})
					if err != nil {
						t.Error(err)
						answers <- 0
						return
					}
					answers <- resp.StatusCode
				}()
			}
			inside, refused := 0, 0
			for inside+refused < requests {
				select {
				case <-g.entered:
					inside++
				case code := <-answers:
					refused++
					if code != http.StatusTooManyRequests && code != http.StatusServiceUnavailable {
						t.Errorf("answered %d", code)
					}
				}
			}
			p := pool(t, "spoofed").Classes
			release()
			for range inside {
				<-answers
			}
			if inside != c.want || p["anonymous"].InUse != c.want || p["read"].Decisions["admitted"] != 0 {
				t.Errorf("%d inside, %d anonymous, %d read; want %d anonymous", inside, p["anonymous"].InUse, p["read"].Decisions["admitted"], c.want)
			}
		})
	}
}
