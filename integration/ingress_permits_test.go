package integration

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// TestFourDeliveriesAreClaimed: with the worker holding four genuine deliveries the fifth is told to come back and spends
// nothing; one that hangs up frees its permit for another; a worker that never answers frees all of them at the deadline.
func TestFourDeliveriesAreClaimed(t *testing.T) {
	worker := harness.StartReceiver(t)
	s := startIngress(t, worker.Addr, slowBudgets+githubHook(t, "/hooks/ci")+
		strings.Replace(githubHook(t, "/hooks/hanging"), "}\n", " deadline 1s\n}\n", 1))
	body := `{"n":1}`
	worker.Hold()
	var held []net.Conn
	claim := func(path string) {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		held = append(held, c)
		if _, err := io.WriteString(c, delivery(path, body, int64(len(body)))+body); err != nil {
			t.Fatal(err)
		}
	}
	claimed := func(n int) {
		t.Helper()
		harness.Eventually(t, 10*time.Second, fmt.Sprintf("%d deliveries at the worker", n), func() error {
			if use := s.Class(t, "webhook").InUse; use != n || worker.Waiting() != n {
				return fmt.Errorf("%d in use, %d at the worker", use, worker.Waiting())
			}
			return nil
		})
	}
	for range 4 {
		claim("/hooks/ci")
	}
	claimed(4)

	before := s.ingressState(t, "webhook")
	r := mustPost(t, s.addr, delivery("/hooks/ci", body, int64(len(body))), body)
	if r.StatusCode != http.StatusServiceUnavailable || r.body != "webhook ingestion overloaded" || r.Header.Get("Retry-After") == "" {
		t.Errorf("the fifth was answered %s %q, Retry-After %q", r.Status, r.body, r.Header.Get("Retry-After"))
	}
	if got := changeOf(before, s.ingressState(t, "webhook"), "webhook"); got.requests > 0 || got.bytes > 0 || got.webhooks["permit"] != 1 {
		t.Errorf("the fifth changed %+v, want one refused for a permit and nothing spent", got)
	}

	held[0].Close()
	claimed(3)
	claim("/hooks/ci")
	claimed(4)
	worker.Release()
	for i, c := range held[1:] {
		if r, err := readReply(c); err != nil || r.StatusCode != http.StatusOK {
			t.Errorf("claimed delivery %d: %v %v", i, r, err)
		}
	}
	s.WaitIdle(t, 10*time.Second)

	worker.Hold()
	held = nil
	for range 4 {
		claim("/hooks/hanging")
	}
	claimed(4)
	hanging := time.Now()
	for i, c := range held {
		c.SetReadDeadline(time.Now().Add(30 * time.Second))
		if r, err := readReply(c); err != nil || r.StatusCode != http.StatusGatewayTimeout {
			t.Errorf("delivery %d to a worker that hangs: %v %v", i, r, err)
		}
	}
	s.WaitIdle(t, 10*time.Second)
	if took := time.Since(hanging); took > 6*time.Second { // without the hook's own it is the profile's 8 s
		t.Errorf("a deadline of 1 s freed the permits after %v", took)
	}
	if got := s.Pool(t).Ingress.Webhooks; got["deadline"] != 4 || got["gone"] != 1 {
		t.Errorf("outcomes %v, want 4 at the deadline and 1 gone", got)
	}
}

// TestBudgetsAreTakenTogether: what one bucket refuses, the group's or the hook's own, spends nothing of another.
func TestBudgetsAreTakenTogether(t *testing.T) {
	worker := harness.StartReceiver(t)
	s := startIngress(t, worker.Addr, "webhooks {\n requests 3 0.001/s\n bytes 4KiB 0.001/s\n senders 127.0.0.1/32\n}\n"+
		githubHook(t, "/hooks/ci")+strings.Replace(githubHook(t, "/hooks/own"), "}\n", " bucket 1 0.001/s\n}\n", 1))
	for _, d := range []struct {
		path            string
		size            int
		outcome         string
		requests, bytes float64
	}{
		{"/hooks/ci", 3000, "delivered", 1, 3000},
		{"/hooks/ci", 2000, "bytes", 0, 0},
		{"/hooks/own", 10, "delivered", 1, 10},
		{"/hooks/own", 10, "own_bucket", 0, 0},
		{"/hooks/ci", 10, "delivered", 1, 10}, // the refused ones took none of the three
		{"/hooks/ci", 10, "requests", 0, 0},
	} {
		body := strings.Repeat("0", d.size)
		before := s.ingressState(t, "webhook")
		r := mustPost(t, s.addr, delivery(d.path, body, int64(d.size)), body)
		if refused := d.requests == 0; refused != (r.StatusCode == http.StatusServiceUnavailable && r.body == "webhook ingestion overloaded" &&
			r.Header.Get("Retry-After") != "") || !refused && r.StatusCode != http.StatusOK {
			t.Errorf("%s of %d bytes: answered %v", d.path, d.size, r)
		}
		harness.Eventually(t, 10*time.Second, "the delivery's place in the state", func() error {
			got := changeOf(before, s.ingressState(t, "webhook"), "webhook")
			if got.webhooks[d.outcome] != 1 || !near(got.requests, d.requests) || !near(got.bytes, d.bytes) {
				return fmt.Errorf("got %+v, want one %s, %v requests and %v bytes spent", got, d.outcome, d.requests, d.bytes)
			}
			return nil
		})
	}
}

// memoryConstant is what 64 uploads may take beyond four bodies: buffers of their connections and what was not collected yet.
const memoryConstant = 48 << 20

// TestUploadsStayInMemory: 64 senders push 25 MiB each, again and again, with budgets that let every body in. Whether they
// forge or not, the heap never grows beyond four bodies and a constant.
func TestUploadsStayInMemory(t *testing.T) {
	worker := harness.StartReceiver(t)
	s := startIngress(t, worker.Addr, "webhooks {\n requests 100000 10000/s\n bytes 100GiB 10GiB/s\n}\n"+githubHook(t, "/hooks/ci"))
	genuine := strings.Repeat("0", uploadSize)
	base := s.Heap(t)
	peak := s.WatchHeap(t)
	s.crowd(t, 2, forgedDelivery("/hooks/ci", uploadSize), genuine)
	worker.Hold()
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		s.crowd(t, 1, delivery("/hooks/ci", genuine, uploadSize), genuine)
	}()
	harness.Eventually(t, time.Minute, "four bodies at the worker", func() error {
		if n := worker.Waiting(); n != 4 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	worker.Release()
	<-passed
	if got := s.Pool(t).Ingress.Webhooks; got["mac"] < 4 || got["delivered"] < 4 {
		t.Errorf("outcomes %v, want some forged and some genuine bodies read", got)
	}
	most := peak()
	t.Logf("heap %d MiB before, at most %d MiB", base>>20, most>>20)
	if limit := base + 4*uploadSize + memoryConstant; most > limit {
		t.Errorf("the heap reached %d MiB, want at most %d MiB", most>>20, limit>>20)
	}
}

// crowd sends the same delivery n times from each of 64 networks at once; every sender sees an answer each time.
func (s *ingressSite) crowd(t *testing.T, n int, head, body string) {
	var senders sync.WaitGroup
	for i := range 64 {
		senders.Go(func() {
			for range n {
				if _, err := sendRaw(harness.Loopback(300*i), s.addr, head, body); err != nil {
					t.Errorf("sender %d saw no answer: %v", i, err)
					return
				}
			}
		})
	}
	senders.Wait()
}
