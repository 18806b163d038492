package integration

import (
	"fmt"
	"testing"

	"github.com/caddy-admission/gateway/integration/harness"
)

// TestOneAccountHoldsItsShare has somebody with an account begin 20 pushes and finish none. The account holds the 8 places of
// its cap in class push, the rest waits behind it, and pushes of others pass.
func TestOneAccountHoldsItsShare(t *testing.T) {
	s := newCrowdSite(t, "admission {\n total 16\n}", 4096, crowdBackend)
	greedy := s.someone(t, s.addr)
	greedy.push(t, patience)
	for range 20 {
		harness.Send(t, "127.0.0.1", s.addr, unfinishedPush(basic(greedy.Name, secretOf(greedy.Name))))
	}
	harness.Eventually(t, patience, "8 places and 12 waiters of one account", func() error {
		if c := s.Class(t, "push"); c.InUse != 8 || c.Waiting != 12 {
			return fmt.Errorf("%d in use, %d waiting", c.InUse, c.Waiting)
		}
		return nil
	})
	for range 3 {
		s.someone(t, "").push(t, patience)
	}
	if c := s.Class(t, "push"); c.InUse > 8 {
		t.Errorf("%d places in use after the others' pushes, want at most the 8 of one account", c.InUse)
	}
}

// TestTokenElsewhereIsOneMoreNetwork uses an account's secret from another network, as a thief does: it has to be proven there
// again, and shares the account's cap.
func TestTokenElsewhereIsOneMoreNetwork(t *testing.T) {
	s := newCrowdSite(t, "admission {\n total 16\n}", 4096, crowdBackend)
	owner := s.someone(t, s.addr)
	owner.push(t, patience)
	credential := basic(owner.Name, secretOf(owner.Name))
	before := s.Class(t, "candidate").Decisions["admitted"]
	thief := harness.Loopback(5000)
	if resp, _ := harness.Ask(t, thief, s.addr, request("GET", discovery("receive"), credential)); resp.StatusCode != 200 {
		t.Fatalf("discovery with the stolen secret: %s", resp.Status)
	}
	if now := s.Class(t, "candidate").Decisions["admitted"]; now != before+1 {
		t.Errorf("%d candidates admitted, want 1: the secret was proven in another network already", now-before)
	}
	for range 3 {
		harness.Send(t, "127.0.0.1", s.addr, unfinishedPush(credential))
	}
	s.WaitInUse(t, "push", 3)
	for range 12 {
		harness.Send(t, thief, s.addr, unfinishedPush(credential))
	}
	harness.Eventually(t, patience, "8 places of one account, five of them the thief's", func() error {
		if c := s.Class(t, "push"); c.InUse != 8 || c.Waiting != 7 {
			return fmt.Errorf("%d in use, %d waiting", c.InUse, c.Waiting)
		}
		return nil
	})
	s.someone(t, "").push(t, patience)
}

// unfinishedPush is a push of which only the beginning comes.
func unfinishedPush(credential string) string {
	return "POST /pub.git/git-receive-pack HTTP/1.1\r\nHost: git.test\r\nUser-Agent: git/2.39.5\r\n" + credential +
		"\r\nContent-Type: application/x-git-receive-pack-request\r\nContent-Length: 1000000\r\n\r\n0094"
}
