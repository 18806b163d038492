package classify

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-admission/gateway/admission"
)

// oid is an LFS object id.
var oid = strings.Repeat("0123456789abcdef", 4)

// suffixes are the ends of paths that requests are made from, with the kind
// each method gives.
var suffixes = []struct {
	suffix string
	kinds  map[string]Kind
}{
	{"/info/refs?service=git-upload-pack", map[string]Kind{"GET": ReadDiscovery, "HEAD": ReadDiscovery}},
	{"/info/refs?service=git-receive-pack", map[string]Kind{"GET": PushDiscovery, "HEAD": PushDiscovery}},
	{"/info/refs", map[string]Kind{"GET": DumbDiscovery, "HEAD": DumbDiscovery}},
	{"/HEAD", map[string]Kind{"GET": DumbHead, "HEAD": DumbHead}},
	{"/objects/info/packs", map[string]Kind{"GET": Dumb, "HEAD": Dumb}},
	{"/objects/info/alternates", map[string]Kind{"GET": Dumb, "HEAD": Dumb}},
	{"/objects/info/http-alternates", map[string]Kind{"GET": Dumb, "HEAD": Dumb}},
	{"/objects/ab/" + oid[:38], map[string]Kind{"GET": Dumb, "HEAD": Dumb}},
	{"/objects/ab/" + oid[:62], map[string]Kind{"GET": Dumb, "HEAD": Dumb}},
	{"/objects/pack/pack-" + oid[:40] + ".pack", map[string]Kind{"GET": Dumb, "HEAD": Dumb}},
	{"/objects/pack/pack-" + oid + ".idx", map[string]Kind{"GET": Dumb, "HEAD": Dumb}},
	{"/git-upload-pack", map[string]Kind{"POST": ReadRPC}},
	{"/git-receive-pack", map[string]Kind{"POST": PushRPC}},
	{"/git-upload-archive", map[string]Kind{"POST": ArchiveRPC}},
	{"/info/lfs/objects/batch", map[string]Kind{"POST": LFSBatch}},
	{"/info/lfs/locks", map[string]Kind{"GET": LFSLocks, "HEAD": LFSLocks, "POST": LFSLocks}},
	{"/info/lfs/locks?path=a/b&limit=2", map[string]Kind{"GET": LFSLocks, "HEAD": LFSLocks, "POST": LFSLocks}},
	{"/info/lfs/locks/verify", map[string]Kind{"POST": LFSLocks}},
	{"/info/lfs/locks/17/unlock", map[string]Kind{"POST": LFSLocks}},
	{"/info/lfs/verify", map[string]Kind{"POST": LFSVerify}},
	{"/info/lfs/objects/verify", map[string]Kind{"POST": LFSVerify}},
	{"/info/lfs/objects/basic/verify", map[string]Kind{"POST": LFSVerify}},
	{"/info/lfs/objects/" + oid + "/verify", map[string]Kind{"POST": LFSVerify, "GET": LFSObject, "HEAD": LFSObject, "PUT": LFSObject}},
	{"/info/lfs/objects/" + oid, map[string]Kind{"GET": LFSObject, "HEAD": LFSObject, "PUT": LFSObject}},
	{"/info/lfs/objects/" + oid + "/1048576", map[string]Kind{"GET": LFSObject, "HEAD": LFSObject, "PUT": LFSObject}},
	{"/info/lfs/objects/basic/" + oid, map[string]Kind{"GET": LFSObject, "HEAD": LFSObject, "PUT": LFSObject}},
	{"/gitlab-lfs/objects/" + oid, map[string]Kind{"GET": LFSObject, "HEAD": LFSObject, "PUT": LFSObject}},
	{"/gitlab-lfs/objects/" + oid + "/1048576", map[string]Kind{"GET": LFSObject, "HEAD": LFSObject, "PUT": LFSObject}},
	{"/gitlab-lfs/objects/" + oid + "/1048576/authorize", map[string]Kind{"GET": LFSObject, "HEAD": LFSObject, "PUT": LFSObject}},
	{"/info/refs?service=git-upload-archive", nil},
	{"/info/lfs/objects/" + oid[1:], nil},
	{"/objects/ab/" + oid[:40], nil},
	{"/objects/pack/pack-" + oid[:40] + ".rev", nil},
	{"/config", nil},
	{"", nil},
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "get", ""}

// repositories with the name each must get, per profile; "" where the profile
// has no repository of this spelling.
var repositories = []struct{ path, generic, gitea, gitlab string }{
	{"/o/r.git", "o/r", "o/r", "o/r"},
	{"/o/r", "o/r", "o/r", ""},
	{"/Org/Repo.git", "Org/Repo", "org/repo", "org/repo"},
	{"/o/r.wiki.git", "o/r.wiki", "o/r.wiki", "o/r.wiki"},
	{"/r.git", "r", "", "r"},
	{"/git/o/r.git", "git/o/r", "", "git/o/r"},
	{"/gitlab/group/sub/sub2/p.git", "gitlab/group/sub/sub2/p", "", "gitlab/group/sub/sub2/p"},
	{"/group/sub/p.wiki.git", "group/sub/p.wiki", "", "group/sub/p.wiki"},
	{"/~user/r.git", "~user/r", "~user/r", "~user/r"},
	{"/o/c++.git", "o/c++", "o/c++", "o/c++"},
	{"/o/a%20b.git", "o/a b", "o/a b", "o/a b"},
	{"/o/%C3%A9.git", "o/é", "o/é", "o/é"},
	{"/src/work/.git", "src/work", "", ""},
	{"/work/.git/modules/lib", "work/.git/modules/lib", "", ""},
	{"", "/", "", ""},
}

func (p Profile) expected(i int) string {
	switch r := repositories[i]; {
	case p.twoSegments():
		return r.gitea
	case p == GitLab:
		return r.gitlab
	default:
		return r.generic
	}
}

func requestFor(method, target string) *Facts {
	f := &Facts{Method: method, Target: target, Host: "git.example.com"}
	path, _, _ := strings.Cut(target, "?")
	if _, k := cutService(path); k != Other {
		f.ContentType = []string{kindTypes[k]}
	}
	if strings.HasSuffix(path, "/batch") {
		f.ContentType = []string{"application/vnd.git-lfs+json; charset=utf-8"}
	}
	return f
}

// TestEveryRequestHasOneClass enumerates method × path × credential state.
func TestEveryRequestHasOneClass(t *testing.T) {
	seen := map[admission.Class]bool{}
	eachRequest(func(p Profile, i int, method, suffix string, want Kind) {
		f := requestFor(method, repositories[i].path+suffix)
		r := Classify(p, f)
		name := fmt.Sprintf("%v %s %q", p, method, f.Target)
		if p.expected(i) == "" {
			want = Other
		}
		if r.Kind != want || want != Other && r.Refuse == 0 && r.Repository != p.expected(i) {
			t.Errorf("%s: got %s for %q, want %v for %q", name, outcome(r), r.Repository, want, p.expected(i))
		}
		if refused := want != Other && method == "HEAD" && want.Smart(); refused != (r.Refuse == 405) {
			t.Errorf("%s: refusal %d", name, r.Refuse)
		}
		for c := range numCredentials {
			for _, open := range []bool{false, true} {
				class := Class(&r, c, open)
				seen[class] = true
				if got := classesThatHold(&r, c, open); len(got) != 1 || got[0] != class {
					t.Errorf("%s, credential %v, open %v: class %v, rules say %v", name, c, open, class, got)
				}
			}
		}
	})
	for _, c := range []admission.Class{admission.Push, admission.Read, admission.Discovery, admission.Candidate, admission.Anonymous, admission.LFS, admission.Other} {
		if !seen[c] {
			t.Errorf("no request of class %v", c)
		}
	}
}

func eachRequest(do func(p Profile, repository int, method, suffix string, want Kind)) {
	for p := range numProfiles {
		for i := range repositories {
			for _, method := range methods {
				for _, s := range suffixes {
					do(p, i, method, s.suffix, s.kinds[method])
				}
			}
		}
	}
}

// classesThatHold asks the definition of each class, one by one.
func classesThatHold(r *Result, c Credential, open bool) []admission.Class {
	var (
		git       = r.Kind != Other && r.Kind != LFSObject
		usable    = git && r.Refuse == 0
		refs      = slices.Contains([]Kind{ReadDiscovery, PushDiscovery}, r.Kind)
		push      = slices.Contains([]Kind{PushDiscovery, PushRPC}, r.Kind)
		candidate = usable && c == Unproven && (refs || r.Kind == LFSBatch)
		opening   = refs || r.Kind == LFSBatch || r.Kind == LFSLocks
		discovery = usable && c == NoCredential && opening && !open
	)
	var holds []admission.Class
	for class, is := range [admission.NumClasses]bool{
		admission.Push:      usable && push && c == Proven,
		admission.Read:      usable && !push && c == Proven,
		admission.Discovery: discovery,
		admission.Candidate: candidate,
		admission.Anonymous: r.Refuse != 0 || git && c != Proven && !candidate && !discovery,
		admission.LFS:       r.Kind == LFSObject && r.Refuse == 0,
		admission.Other:     r.Kind == Other,
	} {
		if is {
			holds = append(holds, admission.Class(class))
		}
	}
	return holds
}

// TestClassTable is the table of classes as an operator reads it.
func TestClassTable(t *testing.T) {
	const (
		push, read, disc  = admission.Push, admission.Read, admission.Discovery
		cand, anon, other = admission.Candidate, admission.Anonymous, admission.Other
		lfs               = admission.LFS
	)
	for k, want := range map[Kind][5]admission.Class{ // none, none and open, unusable, unproven, proven
		Other:         {other, other, other, other, other},
		ReadDiscovery: {disc, anon, anon, cand, read},
		PushDiscovery: {disc, anon, anon, cand, push},
		DumbDiscovery: {anon, anon, anon, anon, read},
		DumbHead:      {anon, anon, anon, anon, read},
		Dumb:          {anon, anon, anon, anon, read},
		ReadRPC:       {anon, anon, anon, anon, read},
		PushRPC:       {anon, anon, anon, anon, push},
		ArchiveRPC:    {anon, anon, anon, anon, read},
		LFSBatch:      {disc, anon, anon, cand, read},
		LFSLocks:      {disc, anon, anon, anon, read},
		LFSVerify:     {anon, anon, anon, anon, read},
		LFSObject:     {lfs, lfs, lfs, lfs, lfs},
	} {
		r := Result{Kind: k}
		got := [5]admission.Class{
			Class(&r, NoCredential, false), Class(&r, NoCredential, true),
			Class(&r, Unusable, false), Class(&r, Unproven, false), Class(&r, Proven, false),
		}
		if got != want {
			t.Errorf("%v: %v, want %v", k, got, want)
		}
	}
}

// TestServices ties the service to the kind.
func TestServices(t *testing.T) {
	for k := range numKinds {
		if k.Smart() != (kindServices[k] != "") {
			t.Errorf("%v: service %q", k, kindServices[k])
		}
	}
}
