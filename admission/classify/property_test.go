package classify

import (
	"encoding/binary"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/caddy-admission/gateway/admission"
)

// checkRequest holds one request against everything this package promises.
func checkRequest(t *testing.T, f *Facts) {
	t.Helper()
	r := Classify(Generic, f)
	for _, o := range oracles {
		if runs := o.runs(f); runs != "" && r.Kind == Other {
			t.Errorf("%s runs %s for %s %q %q, yet it is other", o.name, runs, f.Method, f.Target, f.ContentType)
		}
	}
	for p := range numProfiles {
		checkResult(t, p, f, Classify(p, f))
	}
	for _, p := range []Profile{Gitea, Forgejo, Gogs} {
		if runs := gitea(f); runs != "" && Classify(p, f).Kind == Other {
			t.Errorf("%v runs %s for %s %q, yet it is other", p, runs, f.Method, f.Target)
		}
	}
}

// checkResult checks what must hold between a request and its result.
func checkResult(t *testing.T, p Profile, f *Facts, r Result) {
	t.Helper()
	name := p.String() + " " + f.Method + " " + f.Target
	if r.Service != kindServices[r.Kind] || r.Kind >= numKinds {
		t.Errorf("%q: kind %v, service %q", name, r.Kind, r.Service)
	}
	if (r.Refuse != 0) != (r.Why != "") || r.Refuse != 0 && (r.Canonical || r.Path != "" || r.Repository != "") {
		t.Errorf("%q: refusal %+v", name, r)
	}
	if r.Refuse != 0 && Class(&r, Proven, false) != admission.Anonymous {
		t.Errorf("%q: a refusal has class %v", name, Class(&r, Proven, false))
	}
	if r.Refuse != 0 || r.Kind == Other {
		if r.Kind == Other && r != (Result{}) {
			t.Errorf("%q: other, but %+v", name, r)
		}
		return
	}
	if r.Repository == "" || !utf8.ValidString(r.Repository) {
		t.Errorf("%q: repository %q", name, r.Repository)
	}
	checkForwarded(t, p, name, f, r)
}

// checkForwarded checks an admitted request as the upstream will get it: no
// server may read it differently, and its spelling is stable.
func checkForwarded(t *testing.T, p Profile, name string, f *Facts, r Result) {
	t.Helper()
	fwd := *f
	if r.Path != "" {
		fwd.Target = r.Path
		if _, query, ok := strings.Cut(f.Target, "?"); ok {
			fwd.Target += "?" + query
		}
		if r.Canonical {
			t.Errorf("%q: canonical, yet forwarded as %q", name, r.Path)
		}
	} else if f.Target[0] != '/' {
		fwd.Target = originForm(f.Target)
	}
	for _, o := range oracles {
		runs := o.runs(&fwd)
		if runs == "" {
			continue
		}
		want := r.Service + " rpc"
		if r.Kind == ReadDiscovery || r.Kind == PushDiscovery {
			want = r.Service + " adv"
		}
		if runs != want {
			t.Errorf("%q: %v, but %s runs %s for %q", name, r.Kind, o.name, runs, fwd.Target)
		}
	}
	again := Classify(p, &fwd)
	if again.Kind != r.Kind || again.Repository != r.Repository || again.Refuse != 0 || again.Path != "" {
		t.Errorf("%q: forwarded as %q it is %+v, was %+v", name, fwd.Target, again, r)
	}
	path, query, hasQuery := strings.Cut(fwd.Target, "?")
	want := !hasQuery && r.Kind != ReadDiscovery && r.Kind != PushDiscovery ||
		query == "service="+r.Service && (r.Kind == ReadDiscovery || r.Kind == PushDiscovery)
	if r.Kind == LFSBatch || r.Kind == ArchiveRPC {
		want = want && again.Canonical // depends on the content type as well
	}
	if again.Canonical != want {
		t.Errorf("%q: forwarded as %q canonical %v, want %v", name, fwd.Target, again.Canonical, want)
	}
	if u, err := url.ParseRequestURI(path); err != nil || u.EscapedPath() != path {
		t.Errorf("%q: net/url would forward %q differently (%v)", name, path, err)
	}
}

// pieces are what requests are composed of in FuzzSpellings.
var pieces = []string{
	"/", "/", "/", "//", "%2F", "%2f", ".", "..", "%2e", "%2E%2e", "/./", "/../", "\\", "%5C", ";x=1", "%3B",
	"/pub.git", "/o", "/r.git", "/r", "/group/sub/p.git", ".git", "/.git", "/modules/m", "/raw/branch/main", "/-", "/r.wiki.git",
	"/info/refs", "/info", "/refs", "info", "refs", "inf%6F", "/info//refs", "/INFO/REFS",
	"/git-upload-pack", "/git-receive-pack", "/git-upload-archive", "git%2Dreceive-pack", "git-", "receive-pack", "upload-pack",
	"/HEAD", "/objects/info/packs", "/info/lfs/objects/batch", "/info/lfs/locks", "/unlock", "/info/lfs/objects/" + oid,
	"?", "&", "=", "service", "service=", "ser%76ice=", "git-receive-pack", "git-upload-pack", "git-upload-pac%6B", "+", "#", "%23",
	"%0A", "\n", "%00", "%", "%zz", "%25", "%20", " ", "é", "%C3%A9", "%e9", "\xff", "x", "a%41", "~", "(", "!", "[", "|", "%7C",
	"http://git.example.com", "https://git.example.com:443", "http://evil.example", "x:", "foo://h", "go-get=1", ";", ":80",
}

var fuzzMethods = []string{"GET", "GET", "HEAD", "POST", "POST", "PUT", "get", "OPTIONS"}

var fuzzTypes = [][]string{nil, {kindTypes[ReadRPC]}, {kindTypes[PushRPC]}, {kindTypes[ArchiveRPC]}, {"text/plain"}, {kindTypes[PushRPC], kindTypes[PushRPC]}, {"application/vnd.git-lfs+json"}}

// spelled composes a request from data, one byte a choice.
func spelled(data []byte) *Facts {
	f := &Facts{Host: "git.example.com"}
	if len(data) < 2 {
		return f
	}
	f.Method = fuzzMethods[int(data[0])%len(fuzzMethods)]
	f.ContentType = fuzzTypes[int(data[1])%len(fuzzTypes)]
	f.Chunked = data[0] > 200
	var target strings.Builder
	for _, b := range data[2:min(len(data), 40)] {
		target.WriteString(pieces[int(b)%len(pieces)])
	}
	f.Target = target.String()
	return f
}

func FuzzSpellings(f *testing.F) {
	for i := range 64 {
		f.Add(binary.BigEndian.AppendUint64(nil, uint64(i)*0x9e3779b97f4a7c15))
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkRequest(t, spelled(data)) })
}

func FuzzTargets(f *testing.F) {
	for _, m := range readMeasured(f) {
		facts := m.facts()
		f.Add(facts.Method, facts.Target, strings.Join(facts.ContentType, "\n"), facts.Chunked)
	}
	for _, q := range readQuiet(f) {
		f.Add(q.Method, q.Target, "", false)
	}
	f.Fuzz(func(t *testing.T, method, target, contentType string, chunked bool) {
		facts := &Facts{Method: method, Target: target, Host: "git.example.com", Chunked: chunked}
		if contentType != "" {
			facts.ContentType = strings.Split(contentType, "\n")
		}
		checkRequest(t, facts)
	})
}

// TestSpellings is a fixed sample of what FuzzSpellings searches, one request
// in four with a suffix that git uses so that most reach the rules.
func TestSpellings(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 111))
	ran, refused, admitted := 0, 0, 0
	for range 12_000 {
		f := randomRequest(rng)
		checkRequest(t, f)
		if t.Failed() {
			return
		}
		for _, o := range oracles {
			if o.runs(f) != "" {
				ran++
				break
			}
		}
		switch r := Classify(Generic, f); {
		case r.Refuse != 0:
			refused++
		case r.Kind.Smart():
			admitted++
		}
	}
	t.Logf("some server ran %d, refused %d, admitted %d", ran, refused, admitted)
	if ran < 500 || refused < 500 || admitted < 500 {
		t.Errorf("the sample is too weak: some server ran %d, refused %d, admitted %d", ran, refused, admitted)
	}
}

// randomRequest starts from a good request and spoils it.
func randomRequest(rng *rand.Rand) *Facts {
	var (
		repo    = []string{"/pub.git", "/o/r.git", "/o/r", "/g/s/p.git", ""}[rng.IntN(5)]
		suffix  = []string{"/info/refs?service=git-receive-pack", "/info/refs?service=git-upload-pack", "/git-receive-pack", "/git-upload-pack", "/info/refs"}[rng.IntN(5)]
		target  = repo + suffix
		service = ReadRPC
		method  = "GET"
	)
	if strings.Contains(suffix, "receive") {
		service = PushRPC
	}
	if strings.HasSuffix(suffix, "-pack") && !strings.Contains(suffix, "?") {
		method = "POST"
	}
	for range rng.IntN(4) {
		switch at, piece := rng.IntN(len(target)+1), pieces[rng.IntN(len(pieces))]; rng.IntN(4) {
		case 0: // escape one byte
			if at < len(target) {
				target = target[:at] + "%" + string(upperHex[target[at]>>4]) + string(upperHex[target[at]&15]) + target[at+1:]
			}
		case 1: // double a piece of it
			to := min(len(target), at+rng.IntN(30))
			target = target[:to] + target[at:]
		default:
			target = target[:at] + piece + target[at:]
		}
	}
	return &Facts{Method: method, Target: target, Host: "git.example.com", ContentType: []string{kindTypes[service]}}
}
