package classify

import (
	"strings"
	"testing"
)

func BenchmarkClassify(b *testing.B) {
	for _, c := range []struct {
		name  string
		facts Facts
	}{
		{"other/page", Facts{Method: "GET", Target: "/o/r/src/branch/main/README.md"}},
		{"other/api", Facts{Method: "POST", Target: "/api/v4/projects/g%2Fsub%2Fp/repository/files/docs%2Findex.md"}},
		{"other/query", Facts{Method: "GET", Target: "/o/r/issues?q=a+b&type=all&state=open&labels=&service=x"}},
		{"git/discovery", Facts{Method: "GET", Target: pushRefs}},
		{"git/rpc", Facts{Method: "POST", Target: pushPost, ContentType: []string{kindTypes[PushRPC]}}},
		{"git/normalised", Facts{Method: "GET", Target: "//o/r%2Egit/info/refs?service=git-receive-pack"}},
		{"refused/dots", Facts{Method: "GET", Target: "/o/x/%2e%2e/r.git/info/refs?service=git-receive-pack"}},
		{"refused/64KiB", Facts{Method: "POST", Target: strings.Repeat("/%2e%2e/a", 64<<10/9) + "/git-receive-pack"}},
		{"other/64KiB", Facts{Method: "POST", Target: strings.Repeat("/%2e%2e/a", 64<<10/9)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Classify(Generic, &c.facts)
			}
		})
	}
}

func BenchmarkFold(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Fold("/o/r/src/branch/main/readme.md")
		Fold("/hooks/./CI/")
	}
}
