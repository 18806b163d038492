package gate

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// The stall limit of a class holds for every body, whoever reads it: small git
// bodies before their place, deliveries, sign-ins, and pages of class other.
func TestStallLimitOfEveryBody(t *testing.T) {
	stall := ptr(admission.Duration(2 * time.Second))
	idle := ptr(admission.Duration(30 * time.Second))
	slow := func(c *admission.ClassConfig) *admission.ClassConfig { c.Stall, c.BodyIdle = stall, idle; return c }
	read := func(w http.ResponseWriter, r *http.Request) error {
		_, err := io.Copy(io.Discard, r.Body)
		return err
	}
	for class, raw := range map[string]string{
		"anonymous":   post(readRPC, 100, "7 bytes"),
		"webhook":     delivery{body: "{}", declared: 1000}.head() + "{",
		"login_start": "POST " + startPath + " HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nuser=",
		"other":       "POST /api/upload HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nsome",
	} {
		in := func() IngressConfig {
			return IngressConfig{Hooks: []HookConfig{githubHook(t, "/hooks/ci")}, LoginStart: []string{"/user/oauth2/*"}}
		}
		ingressBubble(t, classes(class, *slow(&admission.ClassConfig{})), in, read, func(t *testing.T, s *ingressServer) {
			start := time.Now()
			code, text := s.send(raw)
			if took := time.Since(start); code != http.StatusRequestTimeout || took < 2*time.Second || took > 4*time.Second {
				t.Errorf("%s: %d %q after %v, want 408 after 2 to 4 s", class, code, strings.TrimSpace(text), took)
			}
		})
	}
}

// A deadline of class other holds although nothing of the class is capped.
func TestDeadlineOfOther(t *testing.T) {
	cfg := classes("other", admission.ClassConfig{Deadline: ptr(admission.Duration(3 * time.Second))})
	inBubble(t, cfg, waitForEnd, func(t *testing.T, b *bubble) {
		start := time.Now()
		code, _ := status(t, b.send("GET /page HTTP/1.1\r\nHost: x\r\n\r\n"))
		if took := time.Since(start); code != http.StatusGatewayTimeout || took != 3*time.Second {
			t.Errorf("%d after %v, want 504 after 3 s", code, took)
		}
	})
}
