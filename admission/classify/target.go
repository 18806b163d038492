package classify

import "strings"

// target is a request-target taken apart, nothing decoded.
type target struct {
	path, query string
	authority   string // of an absolute-form target
	absolute    bool
	odd         bool // cannot be normal: some server skipped or cut a part of it
}

// splitTarget fails for what is no path of this server: other schemes, "*",
// the authority form.
func splitTarget(s string) (t target, ok bool) {
	if trimmed := strings.TrimLeft(s, " "); len(trimmed) != len(s) {
		s, t.odd = trimmed, true // nginx skips blanks here
	}
	if !strings.HasPrefix(s, "/") {
		if s, ok = t.cutAuthority(s); !ok {
			return t, false
		}
	}
	t.path, t.query, _ = strings.Cut(s, "?")
	return t, true
}

// cutAuthority reads scheme and authority of the absolute form.
func (t *target) cutAuthority(s string) (rest string, ok bool) {
	if rest, ok = cutFold(s, "http://"); !ok {
		if rest, ok = cutFold(s, "https://"); !ok {
			return s, false
		}
	}
	t.absolute, t.authority = true, rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		t.authority, rest = rest[:i], rest[i:]
	} else {
		rest = ""
	}
	return rest, true
}

func cutFold(s, prefix string) (rest string, ok bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
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
