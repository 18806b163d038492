package caddymodule

import (
	"os"
	"strings"
	"testing"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// TestDocumented: every setting, metric and reason is in the documents.
func TestDocumented(t *testing.T) {
	read := func(name string) string {
		raw, err := os.ReadFile("../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	reference, metrics := read("caddyfile.md"), read("metrics.md")
	missing := func(document, text string, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(text, "`"+w) {
				t.Errorf("%s does not explain %s", document, w)
			}
		}
	}
	for _, d := range allDescs {
		name, _, _ := strings.Cut(strings.TrimPrefix(d.String(), `Desc{fqName: "`), `"`)
		missing("metrics.md", metrics, name)
	}
	for r := range admission.NumReasons {
		if r != admission.ReasonNone && r != admission.ReasonGone {
			missing("metrics.md", metrics, r.String())
		}
	}
	for _, setting := range []string{
		"total", "wait on", "caller <", "forge", "class", "allow_starvation", "upstream_workers", "callers_max", "refuse_status",
		"dry_run", "log_callers", "reserve", "max", "caller_max", "repo_max", "deadline", "bucket", "bytes", "caller_bucket",
		"webhooks", "webhook <path>", "logout <path>", "login_start", "login_callback", "senders", "issuer", "forged", "spool <", "deliver <", "keep off",
	} {
		missing("caddyfile.md", reference, setting)
	}
	for placeholder := range map[string]bool{"class": true, "outcome": true, "reason": true, "repository": true} {
		missing("caddyfile.md", reference, "{"+placeholderPrefix+placeholder+"}")
	}
}

// TestWordsDocumented: no setting of the grammar is missing from the reference.
func TestWordsDocumented(t *testing.T) {
	raw, err := os.ReadFile("../docs/caddyfile.md")
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(caddyfile.NewTestDispenser("admission {\n nonsense\n class push {\n nonsense\n }\n webhook /x {\n nonsense\n deliver http://x {\n nonsense\n }\n }\n spool /s {\n nonsense\n }\n logout /y {\n nonsense\n }\n}"))
	r.d.Next()
	r.pool()
	if len(r.mistakes) != 6 {
		t.Fatalf("%d mistakes, want 6: %v", len(r.mistakes), r.mistakes)
	}
	for _, m := range r.mistakes {
		for _, w := range strings.Split(strings.TrimPrefix(m.Allowed, "one of "), ", ") {
			if !strings.Contains(string(raw), w) {
				t.Errorf("caddyfile.md does not mention %q (%s)", w, m.Path)
			}
		}
	}
}
