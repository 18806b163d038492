package classify

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"
)

// measured is one line of testdata/targets.tsv.
type measured struct {
	line                        int
	method, target, body, extra string
	upstreams                   []string
	verdict, expect             string
}

func readMeasured(t testing.TB) []measured {
	t.Helper()
	f, err := os.Open("testdata/targets.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []measured
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasPrefix(s.Text(), "#") {
			continue
		}
		c := strings.Split(s.Text(), "\t")
		if len(c) != 13 {
			t.Fatalf("%d columns, want 13: %q", len(c), s.Text())
		}
		line, err := strconv.Atoi(c[0])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, measured{line, c[1], c[2], c[3], c[4], c[5:11], c[11], c[12]})
	}
	if len(all) != 111 {
		t.Fatalf("%d lines, want 111", len(all))
	}
	return all
}

// facts is the measured request; HOST in a target is the host it was sent to.
func (m measured) facts() *Facts {
	f := &Facts{Method: m.method, Target: strings.Replace(m.target, "HOST", "git.example.com", 1), Host: "git.example.com"}
	switch m.body {
	case "rp":
		f.ContentType = []string{kindTypes[PushRPC]}
	case "up":
		f.ContentType = []string{kindTypes[ReadRPC]}
	}
	switch {
	case m.extra == "ver=HTTP/1.0":
		f.HTTP10 = true
	case m.extra == "chunk=1", m.extra == "Transfer-Encoding: chunked":
		f.Chunked, f.ContentLength = true, -1
	case strings.HasPrefix(m.extra, "ct="):
		f.ContentType = []string{"application/x-www-form-urlencoded"}
	}
	return f
}

// someRuns reports whether a measured upstream ran a git service or printed its
// advertisement.
func (m measured) someRuns() bool {
	for _, answer := range m.upstreams {
		switch _, what, _ := strings.Cut(answer, " "); what {
		case "upADV", "rpADV", "upRPC", "rpRPC", "upArch":
			return true
		}
	}
	return false
}

// derived is the expectation that follows from the columns.
func (m measured) derived() string {
	verdict := strings.TrimRight(m.verdict, "*")
	switch {
	case m.line == 32, verdict == "X" && m.someRuns():
		return "400"
	case m.line == 4, m.line == 92, m.line == 93, m.line == 97:
		return verdict
	case verdict == "X", verdict == "O", strings.HasPrefix(verdict, "405"):
		return "other"
	case verdict == "N" && m.method == "GET":
		return "push_discovery" // every measured line of this kind asks for receive-pack
	case verdict == "N":
		return "push_rpc"
	case verdict == "D" && strings.HasSuffix(m.target, "/HEAD"):
		return "dumb_head"
	case verdict == "D" && strings.HasSuffix(m.target, "/info/refs"):
		return "dumb_discovery"
	}
	return map[string]string{
		"RD": "read_discovery", "PD": "push_discovery", "PD(r)": "push_discovery",
		"R": "read_rpc", "P": "push_rpc", "A": "archive_rpc", "D": "dumb",
	}[verdict]
}

func outcome(r Result) string {
	if r.Refuse != 0 {
		return strconv.Itoa(r.Refuse)
	}
	return r.Kind.String()
}

// TestMeasuredTargets holds Classify against what real servers did.
func TestMeasuredTargets(t *testing.T) {
	for _, m := range readMeasured(t) {
		if want := m.derived(); m.expect != want {
			t.Errorf("line %d: the table expects %q, its columns say %q", m.line, m.expect, want)
		}
		r := Classify(Generic, m.facts())
		if got := outcome(r); got != m.expect {
			t.Errorf("line %d: %s %s: got %s (%s), want %s", m.line, m.method, m.target, got, r.Why, m.expect)
		}
		if m.someRuns() && outcome(r) == "other" {
			t.Errorf("line %d: %s %s: an upstream runs it, yet it is other", m.line, m.method, m.target)
		}
	}
}

// TestMeasuredTargetsInForge repeats the lines below an owner, as a forge with
// owner/name repositories sees them.
func TestMeasuredTargetsInForge(t *testing.T) {
	for _, m := range readMeasured(t) {
		f := m.facts()
		switch {
		case strings.HasPrefix(f.Target, "http"):
			f.Target = strings.Replace(f.Target, "/git/pub.git", "/o/pub.git", 1)
		case strings.HasPrefix(f.Target, "//pub"):
			f.Target = "//o" + f.Target
		default:
			f.Target = f.Target[:strings.IndexByte(f.Target, '/')] + "/o" + strings.TrimLeft(f.Target, " ")
		}
		for _, p := range []Profile{Gitea, Forgejo, Gogs} {
			if got := outcome(Classify(p, f)); got != m.expect {
				t.Errorf("line %d, %v: %s %q: got %s, want %s", m.line, p, f.Method, f.Target, got, m.expect)
			}
		}
	}
}

// TestMeasuredTargetsNormalised shows what is forwarded instead, and that it
// differs exactly where the table says so.
func TestMeasuredTargetsNormalised(t *testing.T) {
	forwarded := map[int]string{}
	for _, m := range readMeasured(t) {
		r := Classify(Generic, m.facts())
		normal := m.verdict == "N" || m.verdict == "PD(r)"
		if normal != (r.Path != "") {
			t.Errorf("line %d: %s: forwards %q", m.line, m.target, r.Path)
		}
		if normal {
			forwarded[m.line] = r.Path
		}
	}
	refs, rpc := "/pub.git/info/refs", "/pub.git/git-receive-pack"
	want := map[int]string{35: refs, 37: refs, 44: refs, 63: refs, 64: refs, 75: rpc, 76: rpc}
	for line, path := range want {
		if forwarded[line] != path {
			t.Errorf("line %d: forwards %q, want %q", line, forwarded[line], path)
		}
	}
	if len(forwarded) != len(want) {
		t.Errorf("normalised lines: %v", forwarded)
	}
}
