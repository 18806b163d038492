package classify

import (
	"bufio"
	"os"
	"strings"
	"testing"
)

// testdata/pages.tsv: profile, page, target.
func TestPagesOfEachForge(t *testing.T) {
	f, err := os.Open("testdata/pages.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := map[string]int{}
	for in := bufio.NewScanner(f); in.Scan(); {
		line := in.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		field := strings.Split(line, "\t")
		if len(field) != 3 {
			t.Fatalf("%q: want profile, page and target", line)
		}
		for name := range strings.SplitSeq(field[0], ",") {
			p, ok := ParseProfile(name)
			if !ok {
				t.Fatalf("%q: unknown profile", line)
			}
			seen[name]++
			if got := PageOf(p, field[2]); got.String() != field[1] {
				t.Errorf("%s %s is %s, want %s", name, field[2], got, field[1])
			}
			if got := PageOf(Generic, field[2]); got != PlainPage {
				t.Errorf("without a preset %s is %s", field[2], got)
			}
		}
	}
	for p := range numProfiles {
		if p != Generic && seen[p.String()] < 10 {
			t.Errorf("%d pages of %s", seen[p.String()], p)
		}
	}
}

// No spelling makes a dear page cheaper: each is decoded, merged and folded.
func TestNoSpellingMakesADearPageCheap(t *testing.T) {
	for _, target := range []string{
		"//o/r/blame/branch/main/x", "/o//r/blame/x", "/o/r/%62lame/x", "/o/r/BLAME/x", "/o/r/./blame/x",
		"/assets/../o/r/blame/x", "/assets/%2e%2e/o/r/blame/x", "/o/r/blame/../../../assets/x.css", "/o/r/x/../blame/y",
		"/o%2Fr/blame/x", `/o\r\blame\x`, "/o/r/blame", "/o/r/blame/", "/o/r/blame?x=/assets/", "/user/events/../../o/r/src/x",
		"/%zz/r/blame/x",
	} {
		if got := PageOf(Gitea, target); got != DearPage {
			t.Errorf("%s is %s", target, got)
		}
	}
	// A dear page does not become a stream by a detour that one server resolves and another does not.
	for _, target := range []string{"/o/r/../../user/events", "/user/./events"} {
		if got := PageOf(Gitea, target); got == StreamPage {
			t.Errorf("%s is a stream", target)
		}
	}
}

func TestRedirectsToSignIn(t *testing.T) {
	for location, want := range map[string]bool{
		"/user/login": true, "/user/login?redirect_to=%2f": true, "https://git.example.com/user/login": true,
		"/user/two_factor": true, "/user/settings/change_password": true, "/": false, "": false, "/o/r": false,
		"/user/settings": false, "//evil.example/user/login": false, "/x/../user/login": true,
	} {
		if got := Gitea.Preset().SignInPath(location); got != want {
			t.Errorf("%q: %v, want %v", location, got, want)
		}
	}
}

func FuzzPageOf(f *testing.F) {
	for _, s := range []string{"/o/r/blame/x", "/a/../b/%2e/c?id=1", "*", "", "http://x/y", "/%zz"} {
		f.Add(uint8(Gitea), s)
	}
	f.Fuzz(func(t *testing.T, p uint8, target string) {
		got := PageOf(Profile(p%uint8(numProfiles)), target)
		if got >= numPages {
			t.Fatalf("page %d", got)
		}
		// What is dear stays dear when a slash is doubled.
		if path, query, _ := strings.Cut(target, "?"); got == DearPage && strings.HasPrefix(path, "/") {
			if again := PageOf(Profile(p%uint8(numProfiles)), "/"+path+"?"+query); again != DearPage {
				t.Fatalf("%q is dear, with a slash more it is %s", target, again)
			}
		}
	})
}
