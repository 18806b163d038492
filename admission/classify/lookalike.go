package classify

import (
	"bytes"
	"strings"
)

// lookAlike says which git kind some upstream would make of a request that
// does not fit the grammar, or Other. Servers differ in what they decode, merge
// and cut before they look at a path:
//
//   - nginx and Apache decode, merge slashes and resolve dot segments; nginx
//     cuts at a raw # and, in a location like ^/git(/.*), at a line feed;
//   - net/http/cgi only decodes; git-http-backend then refuses unclean paths;
//   - Gitea's router looks at the escaped path, merges slashes and drops those
//     at the end.
//
// The dumb protocol has no look-alikes: only files would be served.
func lookAlike(p Profile, m method, t *target) Kind {
	if k := readings(p, m, t); k != Other {
		return k
	}
	if cut, ok := t.beforeFragment(); ok {
		return readings(p, m, &cut)
	}
	return Other
}

func readings(p Profile, m method, t *target) Kind {
	service := Other
	if m == get || m == head {
		service = queryService(t.query)
	}
	if !hasOtherReading(t.path) {
		if service == Other && !t.odd {
			return Other // the grammar has looked at the only reading
		}
		return reading(p, m, t.path, service)
	}
	var space [512]byte
	buffer := space[:0]
	if len(t.path) > len(space) {
		buffer = make([]byte, 0, len(t.path))
	}
	path, ok := resolve(buffer, t.path)
	if !ok {
		return Other // an invalid escape: every server answers 400
	}
	if k := readingOf(p, m, path, service); k != Other {
		return k
	}
	if i := bytes.IndexByte(path, '\n'); i >= 0 {
		if k := readingOf(p, m, path[:i], service); k != Other {
			return k
		}
	}
	return readingOf(p, m, squeeze(buffer, t.path), service)
}

// reading judges one path as one server would see it.
func reading(p Profile, m method, path string, service Kind) Kind {
	repo, k := tail(m, path)
	if k == DumbDiscovery {
		k = service
	}
	if k == Other || k.dumb() || !p.anchored(repo, k) {
		return Other
	}
	return k
}

// readingOf is reading of a path in a buffer. It allocates only for a path that
// ends as git's do.
func readingOf(p Profile, m method, path []byte, service Kind) Kind {
	lfs := bytes.Contains(path, []byte("/info/lfs/")) || bytes.Contains(path, []byte("/gitlab-lfs/"))
	switch {
	case bytes.HasSuffix(path, []byte("/")):
		return Other
	case lfs:
	case service != Other && bytes.HasSuffix(path, []byte("/info/refs")):
	case m == post && (bytes.HasSuffix(path, []byte("-pack")) || bytes.HasSuffix(path, []byte("-archive"))):
	default:
		return Other
	}
	return reading(p, m, string(path), service)
}

// hasOtherReading reports whether servers can differ about path, or the grammar
// refuses a character of it that some server takes.
func hasOtherReading(path string) bool {
	for i := range len(path) {
		switch c := path[i]; {
		case c == '%', c == '#', c == '\\', c <= ' ', c >= 0x7f:
			return true
		case c == '/', c == '.':
			if i > 0 && path[i-1] == '/' {
				return true
			}
		}
	}
	return strings.HasSuffix(path, "/")
}

// resolve appends path decoded once, with slashes merged and dot segments
// resolved. A path that ends in a slash or a dot segment keeps a final slash.
// It fails on an invalid escape.
func resolve(b []byte, path string) (resolved []byte, ok bool) {
	start := 0 // where in b the segment being read starts, after its slash
	for i := 0; i < len(path); {
		c, n := unescape(path[i:])
		if n == 0 {
			return nil, false
		}
		i += n
		if c == '/' {
			b = endSegment(b, start)
			b = append(b, '/')
			start = len(b)
			continue
		}
		b = append(b, c)
	}
	switch string(b[start:]) {
	case ".", "..":
		b = append(endSegment(b, start), '/')
	}
	return b, true
}

// endSegment drops the segment at the end of b when it is empty or ".", and
// with its parent when it is "..", together with the slash in front of it.
func endSegment(b []byte, start int) []byte {
	if start == 0 {
		return b[:0]
	}
	switch string(b[start:]) {
	case "", ".":
		return b[:start-1]
	case "..":
		b = b[:start-1]
		return b[:max(bytes.LastIndexByte(b, '/'), 0)]
	}
	return b
}

// squeeze appends path with slashes merged and those at the end dropped.
func squeeze(b []byte, path string) []byte {
	for i := range len(path) {
		if path[i] == '/' && i > 0 && path[i-1] == '/' {
			continue
		}
		b = append(b, path[i])
	}
	return bytes.TrimSuffix(b, []byte("/"))
}

// queryService returns the discovery that one of the query's service parameters
// asks for, or Other. Servers differ in which of several they take, so the one
// that would do more wins. git-http-backend ends a name at & as well as at = and
// takes what follows for the value: service&git-receive-pack is one (seen with git 2.39).
func queryService(query string) Kind {
	found, named := Other, false // named: the piece before this one was a bare "service"
	for query != "" {
		var piece string
		piece, query, _ = strings.Cut(query, "&")
		if named {
			found = max(found, serviceNamed(piece))
		}
		key, value, hasValue := strings.Cut(piece, "=")
		named = !hasValue && decodesTo(key, "service")
		if hasValue && decodesTo(key, "service") {
			found = max(found, serviceNamed(value))
		}
	}
	return found
}

// serviceNamed is the discovery of an escaped service name. PushDiscovery is
// the greater of the two.
func serviceNamed(value string) Kind {
	switch {
	case decodesTo(value, ReceivePack):
		return PushDiscovery
	case decodesTo(value, UploadPack):
		return ReadDiscovery
	}
	return Other
}

// decodesTo reports whether s, percent-decoded, is want, which contains none of
// the characters + and blank.
func decodesTo(s, want string) bool {
	for i := range len(want) {
		if s == "" {
			return false
		}
		c, n := unescape(s)
		if n == 0 || c != want[i] {
			return false
		}
		s = s[n:]
	}
	return s == ""
}
