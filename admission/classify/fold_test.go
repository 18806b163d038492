package classify

import (
	"strings"
	"testing"
)

func TestFold(t *testing.T) {
	same := []string{
		"/hooks/ci", "/hooks/ci/", "/hooks/ci//", "//hooks/ci", "/hooks//ci", "/./hooks/ci", "/hooks/./ci", "/hooks/ci/.",
		"/x/../hooks/ci", "/hooks/ci/x/..", "/../hooks/ci", "/HOOKS/Ci", "/hooks%2Fci", "/hooks%2fci", "/%68ooks/ci", "/hooks/%43i",
		"/hooks/%2e/ci", "/x/%2E%2e/hooks/ci", "/hooks/ci%2F", "%2Fhooks/ci", "hooks/ci", "/hoo\u212as/ci", "/hook%C5%BF/ci",
	}
	for _, path := range same {
		if got := Fold(path); got != "/hooks/ci" {
			t.Errorf("Fold(%q) = %q", path, got)
		}
	}
	for path, want := range map[string]string{
		"": "/", "/": "/", "//": "/", "/.": "/", "/..": "/", "/a/..": "/", "/%2e%2e/": "/",
		"/hooks/ci2": "/hooks/ci2", "/hooks": "/hooks", "/hooks/ci/x": "/hooks/ci/x", "/hooks/ci.": "/hooks/ci.", "/hooks/..ci": "/hooks/..ci",
		"/hooks/%252Fci": "/hooks/%2fci", "/a%zz": "/a%zz", "/a%": "/a%", "/.well-known/x": "/.well-known/x", "/\u00c9": "/\u00e9",
	} {
		if got := Fold(path); got != want {
			t.Errorf("Fold(%q) = %q, want %q", path, got, want)
		}
	}
}

func TestFoldAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { Fold("/o/r/src/branch/main/readme.md") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzFold checks the shape of a fold, that spellings of a path share it, and
// that folding what holds no escape changes nothing.
func FuzzFold(f *testing.F) {
	for _, s := range []string{"/hooks/ci", "/a/../b", "%2f%2e%2e", "/A%zz", "//", "/\xff", "/İ"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		got := Fold(path)
		if !strings.HasPrefix(got, "/") || strings.Contains(got, "//") || len(got) > 1 && strings.HasSuffix(got, "/") {
			t.Fatalf("Fold(%q) = %q", path, got)
		}
		for segment := range strings.SplitSeq(got[1:], "/") {
			if isDots(segment) {
				t.Fatalf("Fold(%q) = %q", path, got)
			}
		}
		if !strings.Contains(path, "%") && Fold(got) != got {
			t.Fatalf("Fold(%q) = %q, folded again %q", path, got, Fold(got))
		}
		for _, spelling := range []string{path + "/", "/" + path, path + "/x/..", "/%2e/" + path} {
			if strings.HasSuffix(path, "%") || len(path) > 1 && path[len(path)-2] == '%' {
				continue // what is appended would complete an escape
			}
			if Fold(spelling) != got {
				t.Fatalf("Fold(%q) = %q, Fold(%q) = %q", path, got, spelling, Fold(spelling))
			}
		}
	})
}
