package webhook

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoadSecrets(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	const long = "a secret that is long enough"
	good := write("good", long+"\n", 0o600)
	open := write("open", long, 0o644)
	short := write("short", "short\r\n", 0o600)
	s, warnings, err := LoadSecrets([]string{good, open, short})
	if err != nil || s.Len() != 3 || string(s.values()[0]) != long || string(s.values()[2]) != "short" {
		t.Fatalf("%d secrets, %v", s.Len(), err)
	}
	if len(warnings) != 2 || warnings[0].Path != open || warnings[1].Path != short {
		t.Errorf("warnings %v, want the readable and the short file", warnings)
	}
	if _, _, err := LoadSecrets([]string{write("empty", "\n", 0o600), filepath.Join(dir, "none"), dir}); err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("three mistakes give %v", err)
	}
	write("good", "another secret, also long", 0o600)
	if s, _, _ = LoadSecrets([]string{good}); string(s.values()[0]) != "another secret, also long" {
		t.Error("a file is not read anew")
	}
	many := make([]string, MaxSecrets+1)
	for i := range many {
		many[i] = good
	}
	if _, _, err := LoadSecrets(many); err == nil {
		t.Error("more secrets than the bound were accepted")
	}
}

// Nothing that holds a secret prints it, whatever the verb, and no error does.
func TestSecretsNeverPrint(t *testing.T) {
	const secret = "whsec_c2VjcmV0LXRoYXQtbXVzdC1ub3QtcHJpbnQ="
	s, err := NewSecrets(secret)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := Lookup("github")
	v, err := New(p, s, 0)
	if err != nil {
		t.Fatal(err)
	}
	holder := struct {
		S Secrets
		V *Verifier
		s Secrets
	}{s, v, s}
	var all strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&all, verb+verb+verb+verb, s, v, *v, holder)
	}
	raw, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	all.Write(raw)
	for _, name := range Names() {
		p, _ := Lookup(name)
		if _, err := New(p, s, 0); err != nil {
			all.WriteString(err.Error())
		}
	}
	for _, form := range []string{secret, secret[6:20], fmt.Sprintf("%x", secret)[:20], fmt.Sprint([]byte(secret))[1:30]} {
		if strings.Contains(all.String(), form) {
			t.Errorf("%q shows", form)
		}
	}
}

func TestSecretForms(t *testing.T) {
	for _, c := range []struct {
		profile, secret string
		ok              bool
	}{
		{"github", "anything at all", true},
		{"standard-webhooks", "whsec_AAAA", true},
		{"standard-webhooks", "not base64!", false},
		{"gitlab-token", "visible", true},
		{"gitlab-token", "has a space", false},
		{"azure-devops", "user:pass:word", true},
		{"azure-devops", "nocolon", false},
		{"sourcehut", "AAAA", false},
		{"sourcehut", "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=", true},
		{"woodpecker-hook", "any", false},
	} {
		p, _ := Lookup(c.profile)
		s, err := NewSecrets(c.secret)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(p, s, 0); (err == nil) != c.ok {
			t.Errorf("%s with %q: %v", c.profile, c.secret, err)
		}
	}
	p, _ := Lookup("github")
	if _, err := New(p, Secrets{}, 0); err == nil {
		t.Error("a verifying profile was accepted without a secret")
	}
	if _, err := NewSecrets(""); err == nil {
		t.Error("an empty secret was accepted")
	}
}
