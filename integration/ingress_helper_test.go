package integration

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// hookSecret is the secret of every hook that does not bring its own.
const hookSecret = "an integration secret of 35 letters"

// slowBudgets are budgets that do not fill up again while a test looks at them.
const slowBudgets = "webhooks {\n requests 100000 0.001/s\n bytes 1GiB 0.001/s\n senders 127.0.0.1/32\n}\n"

// ingressSite is one gateway with one site whose admission block is block, in front of upstream.
type ingressSite struct {
	*harness.Gateway
	addr string
}

func startIngress(t testing.TB, upstream, block string) *ingressSite {
	t.Helper()
	port := harness.Port(t)
	s := &ingressSite{addr: fmt.Sprintf("127.0.0.1:%d", port)}
	s.Gateway = harness.StartGateway(t, harness.Config{
		Global: "servers {\n protocols h1 h2c\n}",
		Sites:  fmt.Sprintf("http://:%d {\nadmission {\n%s\n}\nreverse_proxy %s\n}", port, block, upstream),
	})
	return s
}

// secretFile writes a secret that only the gateway's user may read.
func secretFile(t testing.TB, secret string) string {
	t.Helper()
	path := filepath.Join(harness.TempDir(t), "secret")
	harness.WriteSecret(t, path, secret)
	return path
}

// githubHook is the block of a hook for GitHub's deliveries.
func githubHook(t testing.TB, path string) string {
	return fmt.Sprintf("webhook %s {\n profile github\n secret_file %s\n}\n", path, secretFile(t, hookSecret))
}

// delivery renders the head of a delivery as GitHub sends it. Its signature is genuine for body unless a header says
// otherwise; length < 0 is chunked.
func delivery(path, body string, length int64, more ...string) string {
	framing := fmt.Sprintf("Content-Length: %d", length)
	if length < 0 {
		framing = "Transfer-Encoding: chunked"
	}
	lines := append([]string{"POST " + path + " HTTP/1.1", "Host: ci.example.test", "User-Agent: GitHub-Hookshot/044aadd",
		"Content-Type: application/json", "X-GitHub-Event: push", "X-GitHub-Delivery: 72d3162e-cc78-11e3-81ab-4c9367dc0958",
		"X-Hub-Signature-256: sha256=" + sign256(hookSecret, body), framing}, more...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// forgedDelivery is well formed; its signature is not.
func forgedDelivery(path string, length int64, more ...string) string {
	return strings.Replace(delivery(path, "", length, more...), sign256(hookSecret, ""), strings.Repeat("0", 64), 1)
}

func sign256(secret, body string) string {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte(body))
	return hex.EncodeToString(m.Sum(nil))
}

// reply is what a client saw.
type reply struct {
	*http.Response
	body     string
	proceeds int // answers of 100 before it
}

// sendRaw sends head and body on a connection of its own, from the loopback address source, and reads the answer. The body goes
// out while the answer is waited for.
func sendRaw(source, addr, head, body string) (*reply, error) {
	d := net.Dialer{Timeout: time.Minute}
	if source != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(source)}
	}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	sent := make(chan struct{})
	defer func() { c.Close(); <-sent }()
	c.SetDeadline(time.Now().Add(time.Minute))
	go func() {
		defer close(sent)
		io.WriteString(c, head+body) // an early answer may cut it
	}()
	return readReply(c)
}

func readReply(c io.Reader) (*reply, error) {
	r := bufio.NewReader(c)
	for proceeds := 0; ; proceeds++ {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode == http.StatusContinue {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		return &reply{resp, string(body), proceeds}, err
	}
}

func (r *reply) String() string {
	if r == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s %q after %d times 100", r.Status, r.body, r.proceeds)
}

// mustPost is sendRaw for a test that needs an answer.
func mustPost(t testing.TB, addr, head, body string) *reply {
	t.Helper()
	r, err := sendRaw("", addr, head, body)
	if err != nil {
		t.Fatalf("no answer to %.60q: %v", head, err)
	}
	return r
}

// ingressChange is what a request changed in the gateway's state.
type ingressChange struct {
	webhooks, logouts map[string]int64 // outcomes that grew
	requests, bytes   float64          // tokens spent by class
	inUse             int
}

// ingressState reads counters and tokens of class.
func (s *ingressSite) ingressState(t testing.TB, class string) harness.Pool {
	t.Helper()
	p := s.Pool(t)
	if p.Classes[class].Bucket == nil {
		t.Fatalf("state: no bucket of class %s", class)
	}
	return p
}

func changeOf(before, after harness.Pool, class string) ingressChange {
	a, b := before.Classes[class], after.Classes[class]
	return ingressChange{
		webhooks: grown(before.Ingress.Webhooks, after.Ingress.Webhooks),
		logouts:  grown(before.Ingress.Logouts, after.Ingress.Logouts),
		requests: a.Bucket.Tokens - b.Bucket.Tokens, bytes: a.Bytes.Left() - b.Bytes.Left(), inUse: b.InUse,
	}
}

func grown(before, after map[string]int64) map[string]int64 {
	out := maps.Clone(after)
	maps.DeleteFunc(out, func(k string, v int64) bool { return v == before[k] })
	for k := range out {
		out[k] -= before[k]
	}
	return out
}

// near allows for what a bucket of 0.001 a second gained meanwhile.
func near(got, want float64) bool { return got > want-1 && got < want+0.5 }
