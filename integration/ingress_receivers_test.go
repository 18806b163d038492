package integration

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// capturedSecret is the secret of the captured deliveries of a real Gitea, so the real receivers have it too.
const capturedSecret = "hook-secret"

func sign1(secret, body string) string {
	m := hmac.New(sha1.New, []byte(secret))
	m.Write([]byte(body))
	return hex.EncodeToString(m.Sum(nil))
}

// githubDelivery is a delivery with both signatures that GitHub sends.
func githubDelivery(path, event, body string) string {
	return strings.NewReplacer(sign256(hookSecret, body), sign256(capturedSecret, body), "X-GitHub-Event: push", "X-GitHub-Event: "+event).
		Replace(delivery(path, body, int64(len(body)), "X-Hub-Signature: sha1="+sign1(capturedSecret, body)))
}

// forgedFrom are forgeries made of a genuine delivery: at least one reader of a header or of the body would take each of them.
func forgedFrom(head, body string) map[string][2]string {
	line := func(name, value string) string { return name + ": " + value + "\r\n" }
	good256, good1 := line("X-Hub-Signature-256", "sha256="+sign256(capturedSecret, body)), line("X-Hub-Signature", "sha1="+sign1(capturedSecret, body))
	bad256, bad1 := line("X-Hub-Signature-256", "sha256="+strings.Repeat("0", 64)), line("X-Hub-Signature", "sha1="+strings.Repeat("0", 40))
	with := func(old, new string) [2]string { return [2]string{strings.Replace(head, old, new, 1), body} }
	form := "payload=" + url.QueryEscape(body)
	return map[string][2]string{
		"no signature":                      {strings.Replace(strings.Replace(head, good256, "", 1), good1, "", 1), body},
		"SHA-1 only":                        with(good256, ""),
		"SHA-256 wrong, SHA-1 right":        with(good256, bad256),
		"SHA-256 right, SHA-1 wrong":        with(good1, bad1),
		"SHA-256 right, then wrong":         with(good256, good256+bad256),
		"SHA-256 wrong, then right":         with(good256, bad256+good256),
		"SHA-1 right, then wrong":           with(good1, good1+bad1),
		"SHA-1 wrong, then right":           with(good1, bad1+good1),
		"SHA-1 empty":                       with(good1, line("X-Hub-Signature", "sha1=")),
		"another sender's header beside it": with(good256, good256+line("X-Gitea-Signature", strings.Repeat("0", 64))),
		"another body":                      {head, strings.Replace(body, "alice", "mallo", 1)},
		"a form signed as JSON": {strings.NewReplacer("application/json", "application/x-www-form-urlencoded",
			fmt.Sprintf("Content-Length: %d", len(body)), fmt.Sprintf("Content-Length: %d", len(form))).Replace(head), form},
	}
}

// receiverSite is a gateway whose hooks have the captured deliveries' secret, in front of a tap in front of a real receiver.
func startReceiverSite(t *testing.T, receiver string, hooks map[string]string) (*ingressSite, *harness.Tap) {
	t.Helper()
	tap := harness.StartTap(t, receiver)
	block, secret := slowBudgets, secretFile(t, capturedSecret)
	for path, profile := range hooks {
		block += fmt.Sprintf("webhook %s {\n profile %s\n secret_file %s\n}\n", path, profile, secret)
	}
	return startIngress(t, tap.Addr, block), tap
}

// forge sends every forgery and wants none of them to have reached the receiver.
func (s *ingressSite) forge(t *testing.T, tap *harness.Tap, head, body string) {
	t.Helper()
	before := len(tap.Requests())
	for name, f := range forgedFrom(head, body) {
		if r := mustPost(t, s.addr, f[0], f[1]); r.StatusCode < 400 || r.StatusCode > 401 || r.Header.Get("X-Admission") == "" {
			t.Errorf("%s: answered %s by the receiver", name, r.Status)
		}
	}
	if n := len(tap.Requests()) - before; n != 0 {
		t.Errorf("%d forged deliveries reached the receiver", n)
	}
}

// TestHookServer puts the gateway before Debian's webhook with HMAC rules of its own: it runs its command for every genuine
// delivery, those of a real Gitea among them, and sees no forged one.
func TestHookServer(t *testing.T) {
	server := harness.StartHookServer(t, capturedSecret)
	s, tap := startReceiverSite(t, server.Addr, map[string]string{"/hooks/github": "github", "/hooks/sha1": "github", "/hooks/gitea": "gitea"})
	body := githubPush("main", "1")
	var want []string
	for _, hook := range []string{"github", "sha1"} {
		head := githubDelivery("/hooks/"+hook, "push", body)
		if r := mustPost(t, s.addr, head, body); r.StatusCode != http.StatusOK {
			t.Errorf("%s: answered %s %q", hook, r.Status, r.body)
		}
		want = append(want, hook)
		s.forge(t, tap, head, body)
	}
	for _, v := range capturedVectors(t) {
		r := mustPost(t, s.addr, v.head("/hooks/gitea"), string(v.Body))
		status := http.StatusOK
		switch {
		case v.Expect == "refuse":
			status = http.StatusUnauthorized
		case strings.Contains(v.ID, "form"):
			status = http.StatusInternalServerError // the receiver's own: it checks the form as it came, Gitea signs the JSON inside
		default:
			want = append(want, "gitea")
		}
		if r.StatusCode != status {
			t.Errorf("%s: answered %s %q, want %d", v.ID, r.Status, r.body, status)
		}
	}
	slices.Sort(want)
	harness.Eventually(t, 30*time.Second, "the command of every genuine delivery", func() error {
		fired := server.Fired(t)
		slices.Sort(fired)
		if !slices.Equal(fired, want) {
			return fmt.Errorf("fired %v, want %v", fired, want)
		}
		return nil
	})
}

// TestBuildbot puts the gateway before a real Buildbot in strict mode. Every kind of delivery that it knows is accepted, and
// builds; it sees no forged one.
func TestBuildbot(t *testing.T) {
	b := harness.StartBuildbot(t, capturedSecret)
	s, tap := startReceiverSite(t, b.Addr, map[string]string{harness.BuildbotHook: "github"})
	for _, d := range []struct{ event, body string }{
		{"ping", `{"zen":"Keep it logically awesome.","hook_id":1}`},
		{"push", githubPush("main", "1")},
		{"push", strings.Replace(githubPush("v1", "2"), "refs/heads/", "refs/tags/", 1)},
		{"push", strings.Replace(githubPush("topic", "3"), `"ref"`, `"created":true,"ref"`, 1)},
		{"push", strings.Replace(githubPush("topic", "4"), `"ref"`, `"deleted":true,"ref"`, 1)}, // nothing to build
		{"pull_request", githubPull("5")},
	} {
		head := githubDelivery(harness.BuildbotHook, d.event, d.body)
		if r := mustPost(t, s.addr, head, d.body); r.StatusCode != http.StatusOK {
			t.Errorf("%s: answered %s %q", d.event, r.Status, r.body)
		}
		if d.event == "push" {
			s.forge(t, tap, head, d.body)
		}
	}
	gitea, _ := startReceiverSite(t, tap.Addr, map[string]string{harness.BuildbotHook: "gitea"})
	want := 4
	for _, v := range capturedVectors(t) {
		if name := strings.TrimPrefix(v.ID, "captured "); strings.HasPrefix(name, "push-") && name != "push-hook-test.json" { // which Buildbot itself answers 500
			if r := mustPost(t, gitea.addr, v.head(harness.BuildbotHook), string(v.Body)); r.StatusCode != http.StatusOK {
				t.Errorf("%s: answered %s %q", v.ID, r.Status, r.body)
			}
			want += commitsIn(t, v.Body)
		}
	}
	harness.Eventually(t, 60*time.Second, "a build of every change", func() error {
		changes := b.Changes(t)
		if built := b.Built(t); len(changes) != want || built != want {
			return fmt.Errorf("%d changes and %d builds, want %d: %v", len(changes), built, want, changes)
		}
		return nil
	})
	for _, c := range b.Changes(t) {
		if strings.Contains(c.Author, "mallo") {
			t.Errorf("a forged change was taken: %+v", c)
		}
	}
}
