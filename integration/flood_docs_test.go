package integration

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-admission/gateway/integration/harness"
)

var (
	testName = regexp.MustCompile(`\bTest[A-Z][A-Za-z0-9]+`)
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Z][A-Za-z0-9]+)\(`)
)

// TestThreatModelNamesTests holds the threat model to tests that exist: one at least in every row of a table of claims.
func TestThreatModelNamesTests(t *testing.T) {
	root := harness.Root(t)
	exists := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range testFunc.FindAllSubmatch(source, -1) {
			exists[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "threat-model.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := testName.FindAllString(string(text), -1)
	if len(names) < 30 {
		t.Errorf("the threat model names %d tests; it should name one for each sentence", len(names))
	}
	claims := false // in a table whose last column names tests
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, "|"):
			claims = false
		case strings.HasSuffix(line, "| test |"):
			claims = true
		case claims && !strings.HasPrefix(line, "|--") && !testName.MatchString(line):
			t.Errorf("no test for %s", line)
		}
	}
	for _, name := range names {
		if !exists[name] {
			t.Errorf("the threat model names %s, which does not exist", name)
		}
	}
}
