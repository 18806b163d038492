package classify

import (
	"strings"
	"testing"
)

const (
	readRefs = "/o/r.git/info/refs?service=git-upload-pack"
	pushRefs = "/o/r.git/info/refs?service=git-receive-pack"
	pushPost = "/o/r.git/git-receive-pack"
	readPost = "/o/r.git/git-upload-pack"
)

// TestShape holds headers and bodies against the kind.
func TestShape(t *testing.T) {
	push, read := []string{kindTypes[PushRPC]}, []string{kindTypes[ReadRPC]}
	for _, c := range []struct {
		name, want string
		facts      Facts
	}{
		{"plain discovery", "push_discovery", Facts{Method: "GET", Target: pushRefs}},
		{"body of known length", "400", Facts{Method: "GET", Target: pushRefs, ContentLength: 1}},
		{"body of unknown length", "400", Facts{Method: "GET", Target: readRefs, ContentLength: -1}},
		{"chunked body", "400", Facts{Method: "GET", Target: readRefs, Chunked: true}},
		{"HTTP/1.0", "read_discovery", Facts{Method: "GET", Target: readRefs, HTTP10: true}},
		{"HEAD with a body", "405", Facts{Method: "HEAD", Target: readRefs, ContentLength: 1}},
		{"HEAD of a look-alike", "405", Facts{Method: "HEAD", Target: "/o/r.git/./info/refs?service=git-upload-pack"}},
		{"dumb with a body", "dumb_discovery", Facts{Method: "GET", Target: "/o/r.git/info/refs", ContentLength: 1}},

		{"push", "push_rpc", Facts{Method: "POST", Target: pushPost, ContentType: push, ContentLength: 4}},
		{"chunked push", "push_rpc", Facts{Method: "POST", Target: pushPost, ContentType: push, Chunked: true, ContentLength: -1}},
		{"gzip", "read_rpc", Facts{Method: "POST", Target: readPost, ContentType: read, ContentEncoding: []string{"gzip"}}},
		{"x-gzip", "read_rpc", Facts{Method: "POST", Target: readPost, ContentType: read, ContentEncoding: []string{"X-Gzip"}}},
		{"another encoding", "415", Facts{Method: "POST", Target: readPost, ContentType: read, ContentEncoding: []string{"br"}}},
		{"two encodings", "415", Facts{Method: "POST", Target: readPost, ContentType: read, ContentEncoding: []string{"gzip", "gzip"}}},
		{"no type", "415", Facts{Method: "POST", Target: readPost}},
		{"two types", "415", Facts{Method: "POST", Target: readPost, ContentType: []string{read[0], read[0]}}},
		{"type with a parameter", "415", Facts{Method: "POST", Target: readPost, ContentType: []string{read[0] + "; charset=utf-8"}}},
		{"type of the other service", "415", Facts{Method: "POST", Target: readPost, ContentType: push}},
		{"type in capitals", "415", Facts{Method: "POST", Target: readPost, ContentType: []string{strings.ToUpper(read[0])}}},

		{"absolute form", "push_rpc", Facts{Method: "POST", Target: "http://a.example" + pushPost, Host: "a.example", ContentType: push}},
		{"absolute form, TLS", "push_rpc", Facts{Method: "POST", Target: "HTTPS://A.example:443" + pushPost, Host: "a.example", ServerName: "a.example", ContentType: push}},
		{"absolute form, other host", "421", Facts{Method: "GET", Target: "http://b.example" + readRefs, Host: "a.example"}},
		{"absolute form, other port", "421", Facts{Method: "GET", Target: "http://a.example:81" + readRefs, Host: "a.example"}},
		{"absolute form, user", "421", Facts{Method: "GET", Target: "http://a.example@b.example" + readRefs, Host: "b.example"}},
		{"absolute form, other TLS name", "421", Facts{Method: "GET", Target: "https://b.example" + readRefs, Host: "b.example", ServerName: "a.example"}},
		{"absolute form, other host, LFS", "421", Facts{Method: "POST", Target: "http://b.example/o/r.git/info/lfs/objects/batch", Host: "a.example"}},
		{"absolute form, other host, not git", "other", Facts{Method: "GET", Target: "http://b.example/o/r", Host: "a.example"}},
		{"host and TLS name differ, no absolute form", "read_discovery", Facts{Method: "GET", Target: readRefs, Host: "b.example", ServerName: "a.example"}},
		{"another scheme", "400", Facts{Method: "GET", Target: "foo://a.example" + readRefs, Host: "a.example"}},
		{"a scheme without an authority", "400", Facts{Method: "GET", Target: "http:" + readRefs, Host: "a.example"}},
		{"a URI inside an opaque one", "400", Facts{Method: "GET", Target: "x:http://a.example" + readRefs, Host: "a.example"}},
		{"mailto", "other", Facts{Method: "GET", Target: "mailto:a@b"}},
	} {
		if r := Classify(Generic, &c.facts); outcome(r) != c.want {
			t.Errorf("%s: got %s (%s), want %s", c.name, outcome(r), r.Why, c.want)
		}
	}
}

// TestCanonical says which spellings may prove a credential.
func TestCanonical(t *testing.T) {
	lfs := []string{"application/vnd.git-lfs+json"}
	for _, c := range []struct {
		method, target string
		types          []string
		want           bool
	}{
		{"GET", readRefs, nil, true},
		{"GET", pushRefs, nil, true},
		{"GET", "/o/r/info/refs?service=git-upload-pack", nil, true},
		{"GET", "/o/a%20b.git/info/refs?service=git-upload-pack", nil, true},
		{"GET", "/o/(a)+b.git/info/refs?service=git-upload-pack", nil, true},
		{"GET", "/o/r%2Egit/info/refs?service=git-upload-pack", nil, false},
		{"GET", "/o/a%2Bb.git/info/refs?service=git-upload-pack", nil, false},
		{"GET", "/o/%c3%a9.git/info/refs?service=git-upload-pack", nil, false},
		{"GET", "/o/é.git/info/refs?service=git-upload-pack", nil, false},
		{"GET", "//o/r.git/info/refs?service=git-upload-pack", nil, false},
		{"GET", "/o/r.git//info/refs?service=git-upload-pack", nil, false},
		{"GET", "/o/r.git/info/refs/?service=git-upload-pack", nil, false},
		{"GET", "http://a.example" + readRefs, nil, false},
		{"POST", pushPost, []string{kindTypes[PushRPC]}, true},
		{"POST", pushPost + "?", []string{kindTypes[PushRPC]}, false},
		{"POST", pushPost + "?service=git-upload-pack", []string{kindTypes[PushRPC]}, false},
		{"POST", pushPost + "/", []string{kindTypes[PushRPC]}, false},
		{"POST", "/o/r.git/git-upload-archive", []string{kindTypes[ArchiveRPC]}, true},
		{"POST", "/o/r.git/git-upload-archive", []string{kindTypes[ReadRPC]}, false},
		{"POST", "/o/r.git/info/lfs/objects/batch", lfs, true},
		{"POST", "/o/r.git/info/lfs/objects/batch", []string{lfs[0] + "; charset=utf-8"}, true},
		{"POST", "/o/r.git/info/lfs/objects/batch?x=1", lfs, false},
		{"POST", "/o/r.git/info/lfs/objects/batch", []string{"application/json"}, false},
		{"POST", "/o/r.git/info/lfs/objects/batch", append(lfs, lfs...), false},
	} {
		r := Classify(Generic, &Facts{Method: c.method, Target: c.target, Host: "a.example", ContentType: c.types})
		if r.Refuse != 0 || r.Kind == Other || r.Canonical != c.want {
			t.Errorf("%s %s %q: %s, canonical %v, want %v", c.method, c.target, c.types, outcome(r), r.Canonical, c.want)
		}
	}
}

// TestLookAlikes adds what the measured lines do not hold: 400 where some
// server would run a service, other where none would.
func TestLookAlikes(t *testing.T) {
	oidPath := "/info/lfs/objects/" + oid
	for _, c := range []struct{ method, target, want string }{
		{"GET", "/o/r.git/info/refs?service&git-receive-pack", "400"},
		{"GET", "/o/r.git/info/refs?x=1&service&git%2Dupload-pack&y", "400"},
		{"GET", "/o/r.git/info/refs?service&x&git-upload-pack", "other"},
		{"GET", "/o/r.git/info/refs?service%3Dgit-upload-pack", "other"},
		{"GET", "/o/r.git/info/refs?service=git-upload-pack&service=x&service=y", "400"},
		{"GET", "/o/r.git/info/refs#x?service=git-upload-pack", "other"},
		{"GET", "/o/r.git/info//refs/?service=git-upload-pack", "400"},
		{"GET", "/o/r.git/info/refs%0Axyz?service=git-upload-pack", "400"},
		{"GET", "/o/r.git/info/refs%0A/../x?service=git-upload-pack", "other"},
		{"GET", "/o%0Ax/r.git/info/refs?service=git-upload-pack", "400"},
		{"GET", "/o/r%00.git/info/refs?service=git-upload-pack", "400"},
		{"GET", "/o/caf%e9.git/info/refs?service=git-upload-pack", "400"},
		{"GET", "/o/a\\b.git/info/refs?service=git-upload-pack", "400"},
		{"GET", "/o/a%5Cb.git/info/refs?service=git-upload-pack", "400"},
		{"GET", "/o/../../r.git/info/refs?service=git-upload-pack", "400"},
		{"GET", "/a/info/refs/..%2frefs?service=git-upload-pack", "400"},
		{"POST", "/o/r.git/git-receive-pack#x", "400"},
		{"POST", "/o/a\\b.git/git-upload-pack", "400"},
		{"POST", "/o/r.git/x/..%2Fgit-receive-pack", "400"},
		{"POST", "/o/r.git/git-upload%2Darchive", "400"},
		{"POST", "/o/r.git/git-upload-pack%zz", "other"},
		{"POST", "/o/r.git/info/lfs/locks/x%2F..%2F..%2F..%2F..%2Fgit-receive-pack%0A/unlock", "400"},
		{"POST", "/o/r.git/inf%6F/lfs/objects/batch", "400"},
		{"POST", "/o/r.git/info/lfs//objects/batch", "400"},
		{"POST", "/o/r.git//info/lfs/objects/batch/", "lfs_batch"},
		{"GET", "/o/r.git/info/lfs/objects%2F" + oid, "400"},
		{"GET", "/o/r.git/x/.." + oidPath, "400"},
		{"PUT", "/o/r.git/info//lfs/objects/" + oid + "/12", "400"},
		{"GET", "/o/r.git" + oidPath + "/a%2Fb", "other"},
		{"GET", "/o/r.git/HEA%44", "other"},
		{"GET", "/o/r.git/./HEAD", "other"},
		{"GET", "/o/r.git/inf%6F/refs", "other"},
		{"GET", "/o/r.git/objects/pack/pack-" + oid[:40] + ".pack?x", "dumb"},
		{"GET", "/pub.git/x/r.git/info/refs?service=git-upload-pack", "read_discovery"},
		{"GET", "/tools/git-upload-pack/info/refs?service=git-upload-pack", "read_discovery"},
		{"POST", "/info/refs/git-upload-pack", "415"},
		{"GET", "/o/r/raw/branch/main/info/refs?service=git-receive-pack", "other"},
		{"GET", "/git/o/r/raw/branch/main/info/refs?service=git-receive-pack", "other"},
		{"GET", "/raw/branch/main/info/refs?service=git-receive-pack", "push_discovery"},
	} {
		f := &Facts{Method: c.method, Target: c.target, Host: "a.example"}
		if r := Classify(Generic, f); outcome(r) != c.want {
			t.Errorf("%s %q: got %s (%q), want %s", c.method, c.target, outcome(r), r.Repository, c.want)
		}
	}
}

// TestSeveralServices tries every query of up to three pieces: where any server
// takes a service from it, only the one spelling of that service is admitted.
func TestSeveralServices(t *testing.T) {
	pieces := []string{"service=git-upload-pack", "service=git-receive-pack", "service=x", "service", "git-receive-pack", "git-upload-pack", "x=1", ""}
	queries := []string{}
	for _, a := range pieces {
		queries = append(queries, a)
		for _, b := range pieces {
			queries = append(queries, a+"&"+b)
			for _, c := range pieces {
				queries = append(queries, a+"&"+b+"&"+c)
			}
		}
	}
	for _, query := range queries {
		f := &Facts{Method: "GET", Target: "/o/r.git/info/refs?" + query, Host: "a.example"}
		checkRequest(t, f)
		r, exact := Classify(Generic, f), query == "service=git-upload-pack" || query == "service=git-receive-pack"
		if admitted := r.Kind.Smart() && r.Refuse == 0; admitted != exact {
			t.Errorf("%q: %s", query, outcome(r))
		}
	}
}

// TestLongTargets shows that length hides nothing.
func TestLongTargets(t *testing.T) {
	for _, fill := range []string{"/a/..", "/.", "/", "/%2e", "/a%2F..", "/%2e%2e"} {
		for _, n := range []int{1, 100, 1000, 100_000} {
			f := &Facts{Method: "POST", Target: "/o/r.git" + strings.Repeat(fill, n) + "/o/r.git/git-receive-pack", ContentType: []string{kindTypes[PushRPC]}}
			if r := Classify(Generic, f); r.Kind != PushRPC {
				t.Errorf("%d times %q: %s", n, fill, outcome(r))
			}
		}
	}
}
