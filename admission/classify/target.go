package classify

import "strings"

// target is a request-target taken apart, nothing decoded.
type target struct {
	path, query string
	authority   string // of an absolute-form target
	absolute    bool
	odd         bool // cannot be normal: some server skipped or cut a part of it
}

// splitTarget fails for what is no path: "*", the authority form, mailto:x.
func splitTarget(s string) (t target, ok bool) {
	if trimmed := strings.TrimLeft(s, " "); len(trimmed) != len(s) {
		s, t.odd = trimmed, true // nginx skips blanks here
	}
	for !strings.HasPrefix(s, "/") {
		if s, ok = t.cutScheme(s); !ok {
			return t, false
		}
	}
	t.path, t.query, _ = strings.Cut(s, "?")
	return t, true
}

// cutScheme drops the scheme, and the authority if there is one. Servers take
// any scheme, and net/http forwards what follows x: as a target of its own;
// only http and https with an authority can be normal.
func (t *target) cutScheme(s string) (rest string, ok bool) {
	scheme, rest, found := strings.Cut(s, ":")
	if !found || !isScheme(scheme) {
		return s, false
	}
	after, hierarchical := strings.CutPrefix(rest, "//")
	if !hierarchical {
		t.odd = true
		return rest, true
	}
	t.odd = t.odd || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https")
	t.absolute = true
	end := strings.IndexAny(after, "/?#")
	if end < 0 {
		return after, false
	}
	t.authority = after[:end]
	return after[end:], after[end] == '/'
}

// isScheme reports whether s is a URI scheme (RFC 3986, section 3.1).
func isScheme(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || (c < '0' || c > '9') && c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return s != ""
}

// misdirected reports whether an absolute-form target names another host than
// the request's Host or the TLS server name. Origin-form targets name none.
func (t *target) misdirected(f *Facts) bool {
	if !t.absolute {
		return false
	}
	host, authority := trimPort(f.Host), trimPort(t.authority)
	if f.Host != "" && !strings.EqualFold(host, authority) {
		return true
	}
	if i := strings.LastIndexByte(authority, ':'); i >= 0 && !strings.HasSuffix(authority, "]") {
		authority = authority[:i]
	}
	return f.ServerName != "" && !strings.EqualFold(f.ServerName, authority)
}

// trimPort drops a default port.
func trimPort(host string) string {
	return strings.TrimSuffix(strings.TrimSuffix(host, ":80"), ":443")
}

// beforeFragment is t as a server reads it that cuts the target at a raw #.
func (t *target) beforeFragment() (cut target, ok bool) {
	cut = *t
	cut.odd = true
	if path, _, found := strings.Cut(t.path, "#"); found {
		cut.path, cut.query = path, ""
		return cut, true
	}
	cut.query, _, ok = strings.Cut(t.query, "#")
	return cut, ok
}
