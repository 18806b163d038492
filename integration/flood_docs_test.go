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

// TestThreatModelNamesTests holds the threat model to tests that exist.
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
	for _, name := range names {
		if !exists[name] {
			t.Errorf("the threat model names %s, which does not exist", name)
		}
	}
}
