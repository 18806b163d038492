package integration

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

const (
	aborted = 2000 // requests of the test
	workers = 24   // that run at once
)

// unreliableSite is a gateway in front of an upstream that breaks off as told; every class has a short deadline.
type unreliableSite struct {
	gateway *harness.Gateway
	addr    string
	http2   *http.Client
}

func newUnreliableSite(t *testing.T) *unreliableSite {
	t.Helper()
	port := harness.Port(t)
	upstream := harness.StartUnreliable(t)
	var classes strings.Builder
	for _, class := range []string{"push", "read", "discovery", "candidate", "anonymous", "lfs"} {
		fmt.Fprintf(&classes, "\t\tclass %s {\n\t\t\tdeadline 2s\n\t\t}\n", class)
	}
	s := &unreliableSite{addr: fmt.Sprintf("127.0.0.1:%d", port)}
	s.gateway = harness.StartGateway(t, harness.Config{
		Global: "servers {\n protocols h1 h2c\n}",
		Sites: fmt.Sprintf(`http://:%d {
	admission {
		total 64
%s	}
	reverse_proxy %s {
		transport http {
			keepalive off
			dial_timeout 1m
		}
	}
}`, port, classes.String(), upstream.Addr),
	})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	s.http2 = &http.Client{Transport: transport, Timeout: time.Minute}
	return s
}

// TestEveryPermitComesBack ends 2,000 requests at random moments: before the headers are complete, in the middle of the body,
// in the middle of the answer, by a deadline, by an upstream that dies before or during its answer (which makes Caddy's proxy
// panic), on HTTP/1.1 and HTTP/2. In the end no permit is in use and no goroutine is left.
func TestEveryPermitComesBack(t *testing.T) {
	s := newUnreliableSite(t)
	var seed [32]byte
	rand.Read(seed[:])
	t.Logf("seed %x", seed)

	// One round of everything first, so that what is started once does not look like a leak.
	s.run(t, mathrand.New(mathrand.NewChaCha8(seed)), 60)
	s.settle(t)
	before, _ := s.gateway.Goroutines(t)
	beforeOurs := s.ourGoroutines(t)

	var running sync.WaitGroup
	for w := range workers {
		seed[0] = byte(w)
		random := mathrand.New(mathrand.NewChaCha8(seed))
		running.Go(func() { s.run(t, random, aborted/workers+1) })
	}
	running.Wait()
	s.settle(t)

	for _, class := range []string{"push", "read", "discovery", "candidate", "anonymous", "lfs"} {
		if n := s.gateway.Class(t, class).Decisions["admitted"]; n < 20 {
			t.Errorf("only %d requests of class %s were admitted; the test is about all classes", n, class)
		}
	}
	harness.Eventually(t, 2*time.Minute, "as many goroutines as before", func() error {
		s.http2.CloseIdleConnections() // one whose last stream was cancelled may have become idle just now
		after, stacks := s.gateway.Goroutines(t)
		ours := s.ourGoroutines(t)
		if after > before || ours > beforeOurs {
			return fmt.Errorf("%d goroutines (%d in the gateway's code), %d (%d) before:\n%s", after, ours, before, beforeOurs, stacks)
		}
		return nil
	})
}

// settle closes the client's connections and waits until nothing is in use.
func (s *unreliableSite) settle(t *testing.T) {
	t.Helper()
	s.http2.CloseIdleConnections()
	s.gateway.WaitIdle(t, 2*time.Minute)
}

// ourGoroutines counts the goroutines that run the product's code.
func (s *unreliableSite) ourGoroutines(t *testing.T) int {
	t.Helper()
	_, stacks := s.gateway.Goroutines(t)
	n := 0
	for group := range strings.SplitSeq(stacks, "\n\n") {
		if strings.Contains(group, "caddy-admission/gateway/") {
			var count int
			fmt.Sscanf(strings.TrimSpace(group), "%d @", &count)
			n += count
		}
	}
	return n
}

// run makes n requests, each of a random kind and with a random end.
func (s *unreliableSite) run(t *testing.T, random *mathrand.Rand, n int) {
	for range n {
		a := newAttempt(random)
		if random.IntN(3) == 0 {
			s.overHTTP2(a, random)
		} else {
			s.overHTTP1(t, a, random)
		}
	}
}

// attempt is one request of the test.
type attempt struct {
	source string
	method string
	target string
	header http.Header
	body   int // bytes the request declares
}

var kinds = []struct {
	method, target, contentType string
}{
	{"GET", "/info/refs?service=git-receive-pack", ""},
	{"GET", "/info/refs?service=git-upload-pack", ""},
	{"POST", "/git-receive-pack", "application/x-git-receive-pack-request"},
	{"POST", "/git-upload-pack", "application/x-git-upload-pack-request"},
	{"POST", "/info/lfs/objects/batch", "application/vnd.git-lfs+json"},
	{"PUT", "/info/lfs/objects/" + strings.Repeat("ab", 32), "application/octet-stream"},
	{"GET", "/info/lfs/objects/" + strings.Repeat("cd", 32), ""},
}

var endings = []string{harness.DoAnswer, harness.DoStream, harness.DoStream, harness.DoHang, harness.DoDie, harness.DoDieMid, harness.DoCloseMid}

// newAttempt picks a kind, a credential (none, a right one of a few users, a wrong one), a caller and what the upstream does.
func newAttempt(random *mathrand.Rand) attempt {
	kind := kinds[random.IntN(len(kinds))]
	user := random.IntN(8)
	a := attempt{source: harness.Loopback(user), method: kind.method, target: fmt.Sprintf("/repo%d.git%s", random.IntN(5), kind.target), header: http.Header{}}
	a.header.Set(harness.DoHeader, endings[random.IntN(len(endings))])
	if kind.contentType != "" {
		a.header.Set("Content-Type", kind.contentType)
	}
	switch random.IntN(4) {
	case 0: // none
		a.source = harness.Loopback(100 + random.IntN(50))
	case 1:
		a.header.Set("Authorization", strings.TrimPrefix(basicHeader(fmt.Sprintf("user%d", user), "wrong"), "Authorization: "))
	default:
		a.header.Set("Authorization", strings.TrimPrefix(basicHeader(fmt.Sprintf("user%d", user), "right"), "Authorization: "))
	}
	if a.method != "GET" {
		a.body = []int{4, 500, 8 << 10, 300 << 10}[random.IntN(4)]
	}
	return a
}

// overHTTP1 sends an attempt on a connection of its own and leaves at a random moment, or reads to the end.
func (s *unreliableSite) overHTTP1(t *testing.T, a attempt, random *mathrand.Rand) {
	d := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.ParseIP(a.source)}}
	conn, err := d.Dial("tcp", s.addr)
	if err != nil {
		t.Errorf("dial: %v", err)
		return
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	var head strings.Builder
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nHost: git.test\r\nConnection: close\r\n", a.method, a.target)
	a.header.Write(&head)
	if a.body > 0 {
		fmt.Fprintf(&head, "Content-Length: %d\r\n", a.body)
	}
	head.WriteString("\r\n")
	if random.IntN(2) == 0 {
		conn.(*net.TCPConn).SetLinger(0) // leave with a reset
	}
	switch random.IntN(5) {
	case 0: // before the headers are complete
		io.WriteString(conn, head.String()[:1+random.IntN(head.Len()-2)])
	case 1: // in the middle of the body
		io.WriteString(conn, head.String())
		conn.Write(make([]byte, random.IntN(a.body+1)))
	case 2: // in the middle of the answer
		s.sendWhole(conn, head.String(), a.body)
		io.CopyN(io.Discard, conn, 1+random.Int64N(200<<10))
	case 3: // as soon as everything is sent
		s.sendWhole(conn, head.String(), a.body)
	default: // not at all
		s.sendWhole(conn, head.String(), a.body)
		io.Copy(io.Discard, conn)
	}
}

func (s *unreliableSite) sendWhole(conn net.Conn, head string, body int) {
	io.WriteString(conn, head)
	conn.Write(make([]byte, body))
}

// overHTTP2 sends an attempt as one stream of a shared connection and cancels it at a random moment, or reads to the end.
func (s *unreliableSite) overHTTP2(a attempt, random *mathrand.Rand) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var body io.Reader
	bodyReader, bodyWriter := io.Pipe()
	if a.body > 0 {
		body = bodyReader
		part := a.body
		if random.IntN(3) == 0 {
			part = random.IntN(a.body) // the rest never comes
		}
		go func() {
			bodyWriter.Write(make([]byte, part))
			if part == a.body {
				bodyWriter.Close()
			}
		}()
	}
	defer bodyReader.Close()
	req, err := http.NewRequestWithContext(ctx, a.method, "http://"+s.addr+a.target, body)
	if err != nil {
		return
	}
	req.Header, req.ContentLength, req.Host = a.header, int64(a.body), "git.test"
	if random.IntN(2) == 0 {
		stop := time.AfterFunc(time.Duration(random.IntN(200))*time.Millisecond, cancel)
		defer stop.Stop()
	}
	resp, err := s.http2.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if random.IntN(2) == 0 {
		io.CopyN(io.Discard, resp.Body, 1+random.Int64N(200<<10))
		return
	}
	io.Copy(io.Discard, resp.Body)
}
