package classify

import "strings"

// anchored reports whether a repository may stand at path under p for a
// request of kind k. path is decoded, with single slashes; "" is the root.
func (p Profile) anchored(path string, k Kind) bool {
	last := path[strings.LastIndexByte(path, '/')+1:]
	switch {
	case p.twoSegments():
		if strings.Count(path, "/") != 2 {
			return false
		}
	case p == GitLab:
		if len(last) <= len(".git") || !strings.HasSuffix(last, ".git") {
			return false
		}
	}
	return !insideRepository(path, last) && !webRoute(path, k)
}

// insideRepository reports whether path goes on below a repository, where no
// further one is: /r.git/raw/branch/main. Git itself keeps repositories below
// modules and worktrees.
func insideRepository(path, last string) bool {
	if strings.HasSuffix(last, ".git") {
		return false
	}
	_, below, found := strings.Cut(path, ".git/")
	for found {
		if !strings.HasPrefix(below, "modules/") && !strings.HasPrefix(below, "worktrees/") {
			return true
		}
		_, below, found = strings.Cut(below, ".git/")
	}
	return false
}

// webRoute reports whether a forge serves a page at path and not a repository,
// although the request ends as a git request does. Requests that carry a
// service are pages only in Gitea's spelling of a file (owner/name/raw/branch/…);
// those of the dumb protocol, which look like any file, also where other forges,
// APIs and registries keep files. A POST of a service is never a page.
func webRoute(path string, k Kind) bool {
	if !k.dumb() && k != ReadDiscovery && k != PushDiscovery {
		return false
	}
	rest := strings.TrimPrefix(path, "/")
	for i := 0; rest != ""; i++ {
		segment, after, _ := strings.Cut(rest, "/")
		next, _, _ := strings.Cut(after, "/")
		if i >= 2 && isFilePage(segment) && isRefKind(next) {
			return true
		}
		if k.dumb() && dumbRoute(i, segment, next, k) {
			return true
		}
		rest = after
	}
	return false
}

// dumbRoute judges segment number i for the dumb protocol; next follows it.
func dumbRoute(i int, segment, next string, k Kind) bool {
	switch {
	case i == 0:
		return segment == "api" || segment == "v2" || segment == "-"
	case segment == "-":
		return true
	case k == DumbHead: // a name of a branch, tag or file far more often than the file HEAD
		return isFilePage(segment) || isRefPage(segment)
	}
	return i >= 2 && next != "" && isFilePage(segment)
}

// isFilePage names the routes below owner/name under which forges and gitweb
// serve single files.
func isFilePage(segment string) bool {
	switch segment {
	case "raw", "src", "media", "blob", "blame", "plain", "tree", "render", "commits":
		return true
	}
	return false
}

// isRefPage names further routes whose last segment is often a ref.
func isRefPage(segment string) bool {
	switch segment {
	case "commit", "log", "archive", "branches", "tags", "refs", "rss", "atom", "manifests", "files", "compare", "diff", "graph", "snapshot", "releases", "download":
		return true
	}
	return false
}

func isRefKind(segment string) bool {
	switch segment {
	case "branch", "tag", "commit", "blob":
		return true
	}
	return false
}
