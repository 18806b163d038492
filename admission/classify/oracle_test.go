package classify

import (
	"net/url"
	"path"
	"regexp"
	"strings"
)

// An oracle answers which git service a real server would run for a request,
// with "adv" or "rpc" behind it, or "". The oracles follow the servers'
// documented or measured routing and share no code with the package.
type oracle struct {
	name string
	runs func(*Facts) string
}

var oracles = []oracle{
	{"apache + git-http-backend", func(f *Facts) string { return viaBackend(f, apachePath) }},
	{"nginx + git-http-backend", func(f *Facts) string { return viaBackend(f, nginxPath) }},
	{"nginx, a location that ends at a line feed", func(f *Facts) string { return viaBackend(f, nginxLocation) }},
	{"net/http/cgi + git-http-backend", func(f *Facts) string { return viaBackend(f, goPath) }},
	{"soft-serve", softServe},
	{"gitea", gitea},
}

// frontPath is what a front server hands to git-http-backend.
type frontPath func(f *Facts) (path, query string, ok bool)

func originForm(target string) string {
	if after := absolute.ReplaceAllString(target, ""); after != "" {
		return after
	}
	return "/"
}

func apachePath(f *Facts) (string, string, bool) {
	target := originForm(f.Target)
	if strings.ContainsAny(target, "# ") {
		return "", "", false
	}
	p, query, _ := strings.Cut(target, "?")
	if strings.Contains(strings.ToLower(p), "%2f") {
		return "", "", false
	}
	p, ok := decodeAndResolve(p)
	return p, query, ok
}

func nginxPath(f *Facts) (string, string, bool) {
	target, _, _ := strings.Cut(strings.TrimLeft(originForm(f.Target), " "), "#")
	p, query, _ := strings.Cut(target, "?")
	p, ok := decodeAndResolve(p)
	return p, query, ok
}

func nginxLocation(f *Facts) (string, string, bool) {
	p, query, ok := nginxPath(f)
	p, _, _ = strings.Cut(p, "\n")
	return p, query, ok
}

func goPath(f *Facts) (string, string, bool) {
	u, err := url.ParseRequestURI(f.Target)
	if err != nil {
		return "", "", false
	}
	return u.Path, u.RawQuery, true
}

// decodeAndResolve decodes once, merges slashes and resolves dot segments; a
// path that climbs above the root or holds a NUL is refused.
func decodeAndResolve(p string) (string, bool) {
	if !strings.HasPrefix(p, "/") {
		return "", false
	}
	p, err := url.PathUnescape(p)
	if err != nil || strings.Contains(p, "\x00") {
		return "", false
	}
	var kept []string
	open := false
	for _, segment := range strings.Split(p[1:], "/") {
		open = segment == "" || segment == "." || segment == ".."
		switch segment {
		case "", ".":
		case "..":
			if len(kept) == 0 {
				return "", false
			}
			kept = kept[:len(kept)-1]
		default:
			kept = append(kept, segment)
		}
	}
	resolved := "/" + strings.Join(kept, "/")
	if open && len(kept) > 0 {
		resolved += "/"
	}
	return resolved, true
}

// viaBackend is git-http-backend(1): dispatch on the end of PATH_INFO, content
// type compared byte for byte, the last service parameter wins.
func viaBackend(f *Facts, front frontPath) string {
	p, query, ok := front(f)
	if !ok || strings.Contains(p, "\x00") || p != path.Clean(p) {
		return "" // refused by the front, or "aliased"
	}
	if repo, ok := strings.CutSuffix(p, "/info/refs"); ok && (f.Method == "GET" || f.Method == "HEAD") {
		service := lastService(query)
		if (service == UploadPack || service == ReceivePack) && mayHold(repo, true) {
			return service + " adv"
		}
		return ""
	}
	for _, service := range []string{UploadPack, ReceivePack, UploadArchive} {
		repo, ok := strings.CutSuffix(p, "/"+service)
		if ok && f.Method == "POST" && hasType(f, service) && mayHold(repo, false) {
			return service + " rpc"
		}
	}
	return ""
}

func hasType(f *Facts, service string) bool {
	return len(f.ContentType) == 1 && f.ContentType[0] == "application/x-"+service+"-request"
}

// lastService reads the query as git's own parser does: a name ends at & or =,
// a value at &.
func lastService(query string) (service string) {
	for query != "" {
		var name, value string
		if i := strings.IndexAny(query, "&="); i >= 0 {
			name, query = query[:i], query[i+1:]
		} else {
			name, query = query, ""
		}
		value, query, _ = strings.Cut(query, "&")
		if gitDecode(name) == "service" {
			service = gitDecode(value)
		}
	}
	return service
}

var escape = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

func gitDecode(s string) string {
	s = strings.ReplaceAll(s, "+", " ")
	return escape.ReplaceAllStringFunc(s, func(e string) string {
		d, err := url.PathUnescape(e)
		if err != nil || d == "\x00" {
			return e
		}
		return d
	})
}

// softServe routes with gorilla/mux: an unclean path is redirected, the first
// service parameter wins.
func softServe(f *Facts) string {
	u, err := url.ParseRequestURI(f.Target)
	if err != nil {
		return ""
	}
	clean := path.Clean(u.Path)
	if strings.HasSuffix(u.Path, "/") && clean != "/" {
		clean += "/"
	}
	if clean != u.Path || strings.Contains(u.Path, "\n") {
		return ""
	}
	if repo, ok := strings.CutSuffix(u.Path, "/info/refs"); ok && f.Method == "GET" {
		if s := u.Query().Get("service"); (s == UploadPack || s == ReceivePack) && mayHold(repo, true) {
			return s + " adv"
		}
	}
	for _, s := range []string{UploadPack, ReceivePack, UploadArchive} {
		if repo, ok := strings.CutSuffix(u.Path, "/"+s); ok && f.Method == "POST" && hasType(f, s) && mayHold(repo, false) {
			return s + " rpc"
		}
	}
	return ""
}

// gitea routes the escaped path, slashes merged, one dropped at the end, to
// exactly owner/name, whatever the content type.
func gitea(f *Facts) string {
	u, err := url.ParseRequestURI(f.Target)
	if err != nil {
		return ""
	}
	p := u.Path
	if u.RawPath != "" {
		p = u.RawPath
	}
	p = strings.TrimSuffix(slashes.ReplaceAllString(p, "/"), "/")
	segments := strings.SplitN(strings.TrimPrefix(p, "/"), "/", 3)
	if len(segments) != 3 || strings.HasSuffix(segments[0], ".git") {
		return "" // no owner's name ends in .git
	}
	for _, s := range []string{UploadPack, ReceivePack, UploadArchive} {
		if f.Method == "POST" && segments[2] == s {
			return s + " rpc"
		}
	}
	if s := u.Query().Get("service"); f.Method == "GET" && segments[2] == "info/refs" && (s == UploadPack || s == ReceivePack) {
		return s + " adv"
	}
	return ""
}

var (
	absolute        = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*:)*[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*`)
	slashes         = regexp.MustCompile(`/+`)
	belowRepository = regexp.MustCompile(`(?s)\.git/(.*)$`)
	gitKeeps        = regexp.MustCompile(`^(modules|worktrees)/`)
	forgeFile       = regexp.MustCompile(`(?s)^/[^/]+/[^/]+/(.+/)?(raw|src|media|blob|blame|plain|tree|render|commits)/(branch|tag|commit|blob)(/|$)`)
)

// mayHold says whether a repository may be at dir: the two places where this
// package takes it for granted that none is. Below a repository there is none
// but git's own; where a forge serves files of a branch there is none to read.
func mayHold(dir string, discovery bool) bool {
	if discovery && forgeFile.MatchString(dir) {
		return false
	}
	if strings.HasSuffix(dir, ".git") {
		return true
	}
	for m := belowRepository.FindStringSubmatch(dir); m != nil; m = belowRepository.FindStringSubmatch(m[1]) {
		if !gitKeeps.MatchString(m[1]) {
			return false
		}
	}
	return true
}
