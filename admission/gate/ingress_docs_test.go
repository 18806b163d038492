package gate

import (
	"os"
	"strings"
	"testing"

	"github.com/caddy-admission/gateway/admission/webhook"
)

// The operators' page names every outcome and every profile.
func TestIngressDocumentIsComplete(t *testing.T) {
	raw, err := os.ReadFile("../../docs/ingress.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	want := append(webhook.Names(), "generic")
	for _, o := range HookOutcomes() {
		want = append(want, o.String())
	}
	for o := range numLogoutOutcomes {
		want = append(want, o.String())
	}
	for _, word := range want {
		if !strings.Contains(page, "`"+word+"`") {
			t.Errorf("docs/ingress.md does not name %s", word)
		}
	}
}

// The sets are closed: names are there and differ.
func TestOutcomeNames(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range HookOutcomes() {
		if n := o.String(); n == "" || n == "invalid" || seen[n] {
			t.Errorf("outcome %d is %q", o, n)
		}
		seen[o.String()] = true
	}
	if len(seen) != len(NewState(mustPolicy(t)).Ingress.Snapshot().Webhooks) {
		t.Error("the snapshot holds another set")
	}
}
