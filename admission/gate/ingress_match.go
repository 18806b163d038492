package gate

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
)

// match finds the configured path of r. lookalike is true when r's path only
// becomes a configured one once it is decoded, squeezed, dot-resolved,
// case-folded, slash-trimmed or stripped of path parameters: some upstream
// would serve it as that path, past every check. It allocates nothing for a
// path that cannot be anything else.
func (in *ingress) match(r *http.Request) (found *route, lookalike bool) {
	path := r.URL.EscapedPath()
	routes, known := in.exact[path]
	for _, ro := range routes {
		if ro.asked(r.URL) {
			return ro, false
		}
	}
	for _, ro := range in.patterns {
		if matchPath(ro.segments, path) {
			return ro, false
		}
	}
	if known {
		return nil, false
	}
	class, lookalike := in.lookalike(path)
	if lookalike {
		in.state.Ingress.counters.lookalike(class)
	}
	return nil, lookalike
}

// asked reports whether the route's query pair is there.
func (ro *route) asked(u *url.URL) bool {
	if ro.query[0] == "" {
		return true
	}
	q, err := url.ParseQuery(u.RawQuery)
	values := q[ro.query[0]]
	return err == nil && len(values) == 1 && values[0] == ro.query[1]
}

func (in *ingress) lookalike(path string) (admission.Class, bool) {
	if plainPath(path) {
		return in.isFold(path)
	}
	if class, ok := in.isFold(classify.Fold(path)); ok {
		return class, true
	}
	if stripped, had := stripParameters(path); had {
		return in.isFold(classify.Fold(stripped))
	}
	return 0, false
}

// isFold finds the configured path or pattern whose fold is folded.
func (in *ingress) isFold(folded string) (admission.Class, bool) {
	if class, ok := in.folded[folded]; ok {
		return class, true
	}
	for _, ro := range in.patterns {
		if matchPath(ro.folded, folded) {
			return ro.class, true
		}
	}
	return 0, false
}

// plainPath reports whether folding leaves the path as it is.
func plainPath(p string) bool {
	if p == "" || p[0] != '/' || (len(p) > 1 && p[len(p)-1] == '/') {
		return false
	}
	for i := range len(p) {
		switch c := p[i]; {
		case c == '%', c == ';', c >= 'A' && c <= 'Z', c >= 0x80:
			return false
		case (c == '/' || c == '.') && i > 0 && p[i-1] == '/':
			return false
		}
	}
	return true
}

// stripParameters cuts ";…" from every segment, as servlet containers do.
func stripParameters(p string) (stripped string, had bool) {
	if !strings.Contains(p, ";") {
		return p, false
	}
	var b strings.Builder
	for i, s := range strings.Split(p, "/") {
		if i > 0 {
			b.WriteByte('/')
		}
		s, _, _ = strings.Cut(s, ";")
		b.WriteString(s)
	}
	return b.String(), true
}

// matchPath compares a path with a pattern's segments without allocating.
func matchPath(segments []string, path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	rest, more := path[1:], true
	for _, want := range segments {
		if !more {
			return false
		}
		var s string
		s, rest, more = strings.Cut(rest, "/")
		if s != want && (want != "*" || s == "") {
			return false
		}
	}
	return !more
}
