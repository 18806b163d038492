package classify

import (
	"os"
	"strings"
	"testing"
)

// TestDocumented keeps docs/classes.md in step: every refusal's text and every
// profile is in it.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/classes.md")
	if err != nil {
		t.Fatal(err)
	}
	for status, texts := range map[string][]string{
		"400": {whySpelling, whyBody}, "405": {whyMethod}, "415": {whyContentType, whyEncoding}, "421": {whyHost},
	} {
		for _, text := range texts {
			if !strings.Contains(string(page), "| "+status+" | "+text+" |") {
				t.Errorf("docs/classes.md lacks %s %q", status, text)
			}
		}
	}
	for _, p := range profileNames {
		if !strings.Contains(string(page), "`"+p+"`") {
			t.Errorf("docs/classes.md lacks profile %q", p)
		}
	}
}

func TestProfileNames(t *testing.T) {
	for p := range numProfiles {
		if got, ok := ParseProfile(p.String()); !ok || got != p {
			t.Errorf("%v parses as %v, %v", p, got, ok)
		}
	}
	if _, ok := ParseProfile("gitweb"); ok {
		t.Error("gitweb parses")
	}
}
