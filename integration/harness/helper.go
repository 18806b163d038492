package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// CredentialHelper is a git credential helper that answers every question with one user and secret, and writes down what git
// asked of it.
type CredentialHelper struct {
	log string
}

// UseHelper makes the client ask a new credential helper. The files that hold the secret live in the client's home.
func (g *Git) UseHelper(tb testing.TB, user, secret string) *CredentialHelper {
	tb.Helper()
	return g.useHelper(tb, fmt.Sprintf("username=%s\npassword=%s\n", user, secret))
}

// UseBearerHelper is like UseHelper with a Bearer token. Only git 2.46 and newer understands the answer.
func (g *Git) UseBearerHelper(tb testing.TB, token string) *CredentialHelper {
	tb.Helper()
	return g.useHelper(tb, fmt.Sprintf("capability[]=authtype\nauthtype=Bearer\ncredential=%s\n", token))
}

func (g *Git) useHelper(tb testing.TB, answer string) *CredentialHelper {
	h := &CredentialHelper{log: filepath.Join(g.Home, "helper.log")}
	answerFile := filepath.Join(g.Home, "helper.answer")
	script := filepath.Join(g.Home, "helper")
	writeFile(tb, h.log, "", 0o600)
	writeFile(tb, answerFile, answer, 0o600)
	writeFile(tb, script, fmt.Sprintf("#!/bin/sh\necho \"$1\" >> '%s'\ncat > /dev/null\nif [ \"$1\" = get ]; then cat '%s'; fi\n", h.log, answerFile), 0o755)
	g.Config(tb, "credential.helper", script)
	return h
}

// Operations returns what git asked of the helper, in order: get, store, erase.
func (h *CredentialHelper) Operations(tb testing.TB) []string {
	tb.Helper()
	b, err := os.ReadFile(h.log)
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Fields(string(b))
}

// Count returns how often git asked for one operation.
func (h *CredentialHelper) Count(tb testing.TB, operation string) int {
	tb.Helper()
	n := 0
	for _, op := range h.Operations(tb) {
		if op == operation {
			n++
		}
	}
	return n
}
