package integration

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// chain is a real provider and a real relying party with the gateway between the party and everybody else. The party has one
// path for the start of a login, its callback and the provider's logouts.
type chain struct {
	*ingressSite
	*harness.OpenID
	page  string // what only a user who is signed in sees
	start string // where a login starts
}

// startChain starts one; block is more of the admission block.
func startChain(t *testing.T, block string) *chain {
	t.Helper()
	addr := harness.Addr(t)
	o := harness.StartOpenID(t, addr)
	s := &ingressSite{addr: addr}
	s.Gateway = harness.StartGateway(t, harness.Config{Sites: fmt.Sprintf(`http://%s {
	admission {
		login_start /oidc/callback
		login_callback /oidc/callback
		logout /oidc/callback?logout=backchannel {
			issuer %s {
				clients %s
			}
		}
		%s
	}
	reverse_proxy %s
}`, addr, o.Issuer, o.Client, block, o.Party)})
	c := &chain{ingressSite: s, OpenID: o, page: "http://" + addr + "/ci/page"}
	c.start = "http://" + addr + "/oidc/callback?" + url.Values{"iss": {o.Issuer}, "target_link_uri": {c.page}}.Encode()
	return c
}

// signIn signs a user in from the loopback address source.
func (c *chain) signIn(t *testing.T, user, source string) *harness.Browser {
	t.Helper()
	b := harness.NewBrowser(t, user, source)
	if body, err := b.Visit(c.start); err != nil || body != harness.SignedIn {
		t.Fatalf("%s could not sign in: %v %.200q", user, err, body)
	}
	return b
}

// TestLogoutReachesTheParty: users sign in through the gateway and out at the provider. While forged logouts arrive as fast as
// they are answered, nobody is signed out by them, every genuine logout reaches the relying party and ends the session there,
// and the provider's keys are fetched once by the gateway and never by the party for a forger.
func TestLogoutReachesTheParty(t *testing.T) {
	c := startChain(t, "")
	first := c.signIn(t, "first", harness.Loopback(1))
	c.signOut(t, first)
	stays := c.signIn(t, "stays", harness.Loopback(2))
	_, partyFetched := c.KeyFetches()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var forgers sync.WaitGroup
	for n := range 4 {
		forgers.Go(func() { c.forgeLogouts(ctx, t, n) })
	}
	forged := func() int64 {
		o := c.Pool(t).Ingress.Logouts
		return o["forged"] + o["forged_limited"] + o["shape"]
	}
	harness.Eventually(t, 30*time.Second, "a flood of forged logouts", func() error {
		if n := forged(); n < 200 {
			return fmt.Errorf("%d so far", n)
		}
		return nil
	})
	for n := range 3 {
		c.signOut(t, c.signIn(t, fmt.Sprint("user", n), harness.Loopback(3+n)))
	}
	cancel()
	forgers.Wait()
	if in, err := stays.SignedIn(c.page); !in || err != nil {
		t.Errorf("a forged logout ended a session: %v", err)
	}
	taken, failed := c.Logouts()
	gateway, party := c.KeyFetches()
	t.Logf("%d forged; keys fetched %d times by the gateway, %d by the party; %v", forged(), gateway, party, grown(nil, c.Pool(t).Ingress.Logouts))
	if taken != 4 || failed != 0 || c.Pool(t).Ingress.Logouts["delivered"] != 4 {
		t.Errorf("%d logouts taken, %d failed, %d delivered, want 4, 0 and 4", taken, failed, c.Pool(t).Ingress.Logouts["delivered"])
	}
	if gateway < 1 || gateway > 2 { // at first use; once more a minute at most for an unknown key
		t.Errorf("the gateway fetched the keys %d times", gateway)
	}
	if party > partyFetched {
		t.Errorf("the party fetched the keys %d times, %d before the forged logouts", party, partyFetched)
	}
}

// signOut ends b's session at the provider and wants it to be gone at the party.
func (c *chain) signOut(t *testing.T, b *harness.Browser) {
	t.Helper()
	if in, err := b.SignedIn(c.page); !in || err != nil {
		t.Fatalf("not signed in before the logout: %v", err)
	}
	if err := b.LogOut(c.Issuer); err != nil {
		t.Fatal(err)
	}
	if in, err := b.SignedIn(c.page); in || err != nil {
		t.Errorf("still signed in at the relying party: %v", err)
	}
}

// forgeLogouts posts forged logout tokens from one network, each as soon as the last was answered: with an unknown key id,
// without one, for a known one with a wrong signature, unsigned, and signed with a symmetric algorithm.
func (c *chain) forgeLogouts(ctx context.Context, t *testing.T, n int) {
	for i := 0; ctx.Err() == nil; i++ {
		head := []string{`{"alg":"RS256","kid":"nobody"}`, `{"alg":"RS256"}`, `{"alg":"RS256","kid":"keystore-CHANGE-ME"}`,
			`{"alg":"none"}`, `{"alg":"HS256"}`}[i%5]
		form := "logout_token=" + forgedToken(head, c.Issuer, c.Client)
		r, err := sendRaw(harness.Loopback(300*(n+1)), c.addr, fmt.Sprintf("POST /oidc/callback?logout=backchannel HTTP/1.1\r\nHost: %s\r\n"+
			"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n", c.addr, len(form)), form)
		if err != nil || r.StatusCode != http.StatusBadRequest && r.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("a forged logout was answered %v %v", r, err)
			return
		}
	}
}

// forgedToken has every claim of a genuine logout token and a signature of the right size that no key made.
func forgedToken(head, issuer, client string) string {
	now := time.Now().Unix()
	claims, _ := json.Marshal(map[string]any{ // plain data: cannot fail
		"iss": issuer, "aud": client, "sub": "stays", "sid": rand.Text(), "jti": rand.Text(), "iat": now, "exp": now + 120,
		"events": map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}},
	})
	signature := make([]byte, 256)
	rand.Read(signature)
	b64 := base64.RawURLEncoding.EncodeToString
	return b64([]byte(head)) + "." + b64(claims) + "." + b64(signature)
}

// TestForgersDoNotBlockALogin: forty addresses start logins and forge callbacks as fast as they are answered. An honest user
// beside them signs in, and another after her; neither their starts nor their callbacks are refused.
func TestForgersDoNotBlockALogin(t *testing.T) {
	const logins = 3
	c := startChain(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var forgers sync.WaitGroup
	for n := range 40 {
		forgers.Go(func() { c.forgeLogins(ctx, n) })
	}
	limited := func() int64 {
		l := c.Pool(t).Ingress.Limited
		return min(l["login_start"], l["login_callback"])
	}
	harness.Eventually(t, 60*time.Second, "logins being refused for lack of budget", func() error {
		if n := limited(); n < 20 {
			return fmt.Errorf("%d of each so far", n)
		}
		return nil
	})
	start := time.Now()
	for n := range logins {
		c.signIn(t, fmt.Sprint("honest", n), fmt.Sprintf("127.0.0.%d", 9+n))
	}
	took := time.Since(start)
	cancel()
	forgers.Wait()
	t.Logf("%d logins in %v; refused: %v", logins, took, c.Pool(t).Ingress.Limited)
}

// forgeLogins starts a login and forges two callbacks, again and again, from one address.
func (c *chain) forgeLogins(ctx context.Context, n int) {
	client := &http.Client{Transport: harness.From(harness.Loopback(300 * (n + 1))), Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	forged := "http://" + c.addr + "/oidc/callback?" + url.Values{"code": {"made-up"}, "state": {rand.Text()}}.Encode()
	for ctx.Err() == nil {
		for _, target := range []string{c.start, forged, forged} {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
			if err != nil {
				return
			}
			req.Header.Set("Accept", "text/html")
			if resp, err := client.Do(req); err == nil {
				resp.Body.Close()
			}
		}
	}
}
