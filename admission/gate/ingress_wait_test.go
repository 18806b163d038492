package gate

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// slowKeeper is a Committer whose disk answers when the test says so.
type slowKeeper struct {
	mu    sync.Mutex
	taken []string // bodies, in the order of their permits
	free  chan struct{}
}

func (k *slowKeeper) Commit(ctx context.Context, d *VerifiedDelivery) (CommitAnswer, error) {
	k.mu.Lock()
	k.taken = append(k.taken, string(d.Body))
	k.mu.Unlock()
	select {
	case <-k.free:
		return CommitAnswer{Status: http.StatusAccepted, Kept: true}, nil
	case <-ctx.Done():
		return CommitAnswer{}, context.Cause(ctx)
	}
}

// release lets one delivery be kept.
func (k *slowKeeper) release(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case k.free <- struct{}{}:
		synctest.Wait()
	default:
		t.Fatal("no delivery holds a permit")
	}
}

// keepingBubble runs f with a server whose hook keeps deliveries.
func keepingBubble(t *testing.T, bucket admission.BucketPolicy, f func(t *testing.T, s *ingressServer, k *slowKeeper)) {
	k := &slowKeeper{}
	config := func() IngressConfig {
		k.free = make(chan struct{}) // of the bubble
		h := githubHook(t, "/hooks/ci")
		h.Commit, h.Bucket = k, bucket
		return IngressConfig{Hooks: []HookConfig{h}}
	}
	ingressBubble(t, admission.Config{}, config, nil, func(t *testing.T, s *ingressServer) { f(t, s, k) })
}

// fill opens four deliveries that hold every permit.
func fill(s *ingressServer, addr string) (conns []net.Conn) {
	for range 4 {
		conns = append(conns, s.open(delivery{body: "held", addr: addr}.bytes()))
	}
	synctest.Wait()
	return conns
}

// A hook that keeps its deliveries lets the fifth wait for a moment: it goes
// on when a permit is free, in the order of arrival, and is refused after half
// a second.
func TestKeptDeliveryWaitsForAPermit(t *testing.T) {
	keepingBubble(t, admission.BucketPolicy{}, func(t *testing.T, s *ingressServer, k *slowKeeper) {
		conns := fill(s, "")
		for i := range 3 {
			conns = append(conns, s.open(delivery{body: fmt.Sprint(i)}.bytes()))
			synctest.Wait()
		}
		for range conns {
			k.release(t)
		}
		for _, c := range conns {
			if code, _ := status(t, c); code != http.StatusAccepted {
				t.Errorf("%d, want 202", code)
			}
			_ = c.Close()
		}
		if want := []string{"held", "held", "held", "held", "0", "1", "2"}; !slices.Equal(k.taken, want) {
			t.Errorf("order %v", k.taken)
		}
		conns = fill(s, "")
		start := time.Now()
		code, body := s.send(delivery{body: "late"}.bytes())
		if took := time.Since(start); code != http.StatusServiceUnavailable || body != overloaded || took != hookWaitMax {
			t.Errorf("%d %q after %s, want 503 after %s", code, body, took, hookWaitMax)
		}
		close(k.free)
		for _, c := range conns {
			_ = c.Close()
		}
		if n := outcome(s.state, HookPermit); n != 1 {
			t.Errorf("%d refused for a permit", n)
		}
	})
}

// Known senders are served before strangers that came earlier; strangers fill
// only their part of the places, and one that leaves frees its place.
func TestKnownSendersWaitBeforeStrangers(t *testing.T) {
	const known = "192.0.2.1"
	keepingBubble(t, admission.BucketPolicy{}, func(t *testing.T, s *ingressServer, k *slowKeeper) {
		s.state.Ingress.verified(s.state.Keyer.Group(netip.MustParseAddr(known)), time.Now())
		conns := fill(s, known)
		for i := range hookWaitersOther + 4 { // each of a network of its own
			conns = append(conns, s.open(delivery{body: "stranger", addr: fmt.Sprintf("203.0.%d.1", i)}.bytes()))
		}
		synctest.Wait()
		if n := len(s.state.Ingress.waiters); n != hookWaitersOther {
			t.Errorf("%d strangers wait, want %d", n, hookWaitersOther)
		}
		conns = append(conns, s.open(delivery{body: "known", addr: known}.bytes()))
		synctest.Wait()
		k.release(t)
		if got := k.taken[len(k.taken)-1]; got != "known" {
			t.Errorf("%q went first", got)
		}
		close(k.free)
		for _, c := range conns {
			_ = c.Close()
		}
		synctest.Wait()
		if n := len(s.state.Ingress.waiters); n != 0 {
			t.Errorf("%d wait at the end", n)
		}
	})
}

// A delivery without budget does not wait for a permit it could not use.
func TestNoBudgetDoesNotWait(t *testing.T) {
	keepingBubble(t, admission.BucketPolicy{Burst: 4, PerSecond: 1}, func(t *testing.T, s *ingressServer, k *slowKeeper) {
		conns := fill(s, "")
		start := time.Now()
		code, _ := s.send(delivery{body: "x"}.bytes())
		if took := time.Since(start); took != 0 || code != http.StatusServiceUnavailable || outcome(s.state, HookOwnBucket) != 1 {
			t.Errorf("%d after %s", code, took)
		}
		close(k.free)
		for _, c := range conns {
			_ = c.Close()
		}
	})
}
