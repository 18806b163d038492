package classify

import "strings"

// tail splits path into a repository part and the git suffix that m may
// follow, and says which kind the suffix is. The repository part is empty or
// starts with a slash; nothing about it has been checked. A kind of
// DumbDiscovery still depends on the query.
func tail(m method, path string) (repo string, k Kind) {
	switch m {
	case get, head:
		if repo, ok := strings.CutSuffix(path, "/info/refs"); ok {
			return repo, DumbDiscovery
		}
		if repo, ok := strings.CutSuffix(path, "/HEAD"); ok {
			return repo, DumbHead
		}
		if repo, ok := cutObject(path); ok {
			return repo, Dumb
		}
	case post:
		if repo, k := cutService(path); k != Other {
			return repo, k
		}
	}
	return cutLFS(m, path)
}

func cutService(path string) (repo string, k Kind) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", Other
	}
	switch path[i+1:] {
	case UploadPack:
		return path[:i], ReadRPC
	case ReceivePack:
		return path[:i], PushRPC
	case UploadArchive:
		return path[:i], ArchiveRPC
	}
	return "", Other
}

// cutObject recognises the files a dumb client fetches (git-http-backend(1)).
func cutObject(path string) (repo string, ok bool) {
	i := strings.LastIndex(path, "/objects/")
	if i < 0 {
		return "", false
	}
	dir, file, ok := strings.Cut(path[i+len("/objects/"):], "/")
	if !ok {
		return "", false
	}
	switch {
	case dir == "info":
		ok = file == "packs" || file == "alternates" || file == "http-alternates"
	case dir == "pack":
		id, found := strings.CutPrefix(file, "pack-")
		name, ext, _ := strings.Cut(id, ".")
		ok = found && (ext == "pack" || ext == "idx") && isHex(name, 40, 64)
	default:
		ok = isHex(dir, 2, 2) && isHex(file, 38, 62)
	}
	return path[:i], ok
}

// cutLFS recognises the paths of git-lfs as Gitea, Forgejo, soft-serve and the
// LFS specification spell them, and GitLab's own for objects.
func cutLFS(m method, path string) (repo string, k Kind) {
	if i := strings.LastIndex(path, "/info/lfs/"); i >= 0 && m != noMethod {
		return path[:i], lfsKind(m, path[i+len("/info/lfs/"):])
	}
	if i := strings.LastIndex(path, "/gitlab-lfs/objects/"); i >= 0 {
		return path[:i], lfsObject(m, strings.TrimSuffix(path[i+len("/gitlab-lfs/objects/"):], "/authorize"))
	}
	return "", Other
}

func lfsKind(m method, rest string) Kind {
	if object, ok := strings.CutPrefix(rest, "objects/"); ok {
		switch {
		case m == post && object == "batch":
			return LFSBatch
		case m == post:
			return lfsVerify(object)
		}
		return lfsObject(m, strings.TrimPrefix(object, "basic/"))
	}
	switch {
	case m == put:
	case rest == "locks", m == post && rest == "locks/verify":
		return LFSLocks
	case m == post && rest == "verify":
		return LFSVerify
	case m == post:
		id, ok := strings.CutPrefix(rest, "locks/")
		if id, unlock := strings.CutSuffix(id, "/unlock"); ok && unlock && isToken(id) {
			return LFSLocks
		}
	}
	return Other
}

// lfsVerify accepts verify, basic/verify and <oid>/verify.
func lfsVerify(object string) Kind {
	oid, ok := strings.CutSuffix(object, "/verify")
	if object == "verify" || ok && (oid == "basic" || isHex(oid, 64, 64)) {
		return LFSVerify
	}
	return Other
}

// lfsObject accepts <oid> and <oid>/<size or file name>.
func lfsObject(m method, object string) Kind {
	oid, name, more := strings.Cut(object, "/")
	if m == post || !isHex(oid, 64, 64) || more && !isToken(name) {
		return Other
	}
	return LFSObject
}

// isHex reports whether s is lower-case hexadecimal of length a or b.
func isHex(s string, a, b int) bool {
	if len(s) != a && len(s) != b {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// isToken reports whether s is one segment that every server reads alike.
func isToken(s string) bool {
	if s == "" || s == "." || s == ".." {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isUnreserved(c) && c != '=' {
			return false
		}
	}
	return true
}
