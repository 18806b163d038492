package gate

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/caddy-admission/gateway/admission"
)

// Every delivery that was not taken is reported once, with what the gate knows
// of it, and refusals in a row are counted per hook: those that a stranger can
// cause without a budget are not.
func TestRefusedDeliveriesAreReported(t *testing.T) {
	var mu sync.Mutex
	var got []RefusedDelivery
	config := func() IngressConfig {
		in := oneHook(t)()
		in.Refused = func(d *RefusedDelivery) { mu.Lock(); got = append(got, *d); mu.Unlock() }
		return in
	}
	u := &hookReceiver{}
	ingressBubble(t, admission.Config{}, config, u.next, func(t *testing.T, s *ingressServer) {
		genuine := delivery{body: `{"repository":{"full_name":"team/app"}}`}
		streak := func() int64 { return s.state.Ingress.Snapshot().Streaks["/hooks/ci"] }
		s.send(genuine.bytes())
		u.status = http.StatusInternalServerError
		s.send(genuine.bytes())
		forged := genuine
		forged.forged = true
		s.send(forged.bytes())
		s.send("GET /hooks/ci HTTP/1.1\r\nHost: x\r\n\r\n")
		u.status, u.hold = 0, make(chan struct{})
		var conns []net.Conn
		for range 4 {
			conns = append(conns, s.open(genuine.bytes()))
		}
		synctest.Wait()
		c := s.open(genuine.bytes())
		answerOf(t, c)
		_ = c.Close()
		if n := streak(); n != 2 {
			t.Errorf("%d in a row, want the receiver's 500 and the permit", n)
		}
		close(u.hold)
		for _, c := range conns {
			answerOf(t, c)
			_ = c.Close()
		}
		synctest.Wait()
		if n := streak(); n != 0 {
			t.Errorf("%d in a row after deliveries were taken", n)
		}
	})
	var outcomes []HookOutcome
	for _, d := range got {
		outcomes = append(outcomes, d.Outcome)
	}
	if want := []HookOutcome{HookUpstreamFailed, HookMAC, HookMethod, HookPermit}; !slices.Equal(outcomes, want) {
		t.Fatalf("reported %v, want %v", outcomes, want)
	}
	const id = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
	if d := got[0]; !d.Verified || d.Repository != "team/app" || d.ID != id || d.Event != "push" || d.Status != 500 || d.Hook != "/hooks/ci" {
		t.Errorf("after verification: %+v", d)
	}
	if d := got[1]; d.Verified || d.Repository != "" || d.ID != id || d.Status != 401 {
		t.Errorf("forged: %+v", d)
	}
	if d := got[3]; d.Verified || d.ID != id || d.Status != 503 || d.Profile != "github" {
		t.Errorf("before verification: %+v", d)
	}
}
