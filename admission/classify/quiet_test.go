package classify

import (
	"bufio"
	"os"
	"slices"
	"strings"
	"testing"
)

func readQuiet(t testing.TB) []*Facts {
	t.Helper()
	f, err := os.Open("testdata/quiet.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	digits := strings.NewReplacer("O", strings.Repeat("0123456789abcdef", 4), "H", strings.Repeat("0123456789", 4))
	var all []*Facts
	for s := bufio.NewScanner(f); s.Scan(); {
		if method, target, ok := strings.Cut(s.Text(), " "); ok && method != "#" {
			for _, mark := range []string{"/O", ":O", "/H/", "-H."} {
				target = strings.ReplaceAll(target, mark, digits.Replace(mark))
			}
			all = append(all, &Facts{Method: method, Target: target, Host: "git.example.com"})
		}
	}
	if len(all) < 100 {
		t.Fatalf("only %d requests", len(all))
	}
	return all
}

// TestQuiet shows that everyday requests which are not git are left alone.
func TestQuiet(t *testing.T) {
	for _, f := range readQuiet(t) {
		for p := range numProfiles {
			if r := Classify(p, f); r != (Result{}) {
				t.Errorf("%v: %s %s: got %s for repository %q", p, f.Method, f.Target, outcome(r), r.Repository)
			}
		}
	}
}

// TestQuietAllocatesNothing holds Classify to its word on everyday requests.
// Escapes in a path that ends as git's do are its one exception.
func TestQuietAllocatesNothing(t *testing.T) {
	all := slices.DeleteFunc(readQuiet(t), func(f *Facts) bool {
		return strings.Contains(f.Target, "%") && strings.HasSuffix(f.Target, "/HEAD")
	})
	if n := testing.AllocsPerRun(20, func() {
		for _, f := range all {
			Classify(Generic, f)
		}
	}); n != 0 {
		t.Errorf("%v allocations for %d requests, want 0", n, len(all))
	}
}
