package classify

import "strings"

// Page is what a request that is no git request asks of a forge. The zero value
// is PlainPage.
type Page uint8

const (
	PlainPage   Page = iota // cheap, or nothing the preset knows: class other
	DearPage                // expensive to render: class web unless the visitor is proven
	StreamPage              // an event stream or a long poll: class stream
	SignInPage              // may sign a visitor in
	SignOutPage             // signs a visitor out
	numPages
)

var pageNames = [numPages]string{"plain", "dear", "stream", "sign-in", "sign-out"}

// String returns a fixed name, safe as a label.
func (p Page) String() string {
	if p < numPages {
		return pageNames[p]
	}
	return "invalid"
}

// PageOf says what page of a forge a request-target names: an escaped path, with
// or without a query. Generic has no pages: the answer is PlainPage.
//
// Servers read paths differently, and a page that passes for another would cost
// what nobody counts. So a path is decoded once, its slashes are merged and its
// case is folded, and where it has dot segments it is read twice, with and
// without resolving them: it is dear when either reading is, and a stream, a
// sign-in or a sign-out only when both are. It is pure, takes time linear in
// the target, and allocates only for a profile that has pages.
func PageOf(p Profile, target string) Page {
	preset := p.Preset()
	if preset == nil {
		return PlainPage
	}
	path, query, _ := strings.Cut(target, "?")
	literal, dots := looseSegments(path)
	page := preset.page(literal, query)
	if !dots {
		return page
	}
	resolved := preset.page(resolveDots(literal), query)
	switch {
	case page == DearPage || resolved == DearPage:
		return DearPage
	case page == resolved:
		return page
	}
	return PlainPage
}

func (s *Preset) page(segments []string, query string) Page {
	switch {
	case matchAny(s.Streams, segments):
		return StreamPage
	case matchAny(s.SignIn, segments):
		return SignInPage
	case matchAny(s.SignOut, segments):
		return SignOutPage
	case s.dear(segments, query):
		return DearPage
	}
	return PlainPage
}

// SignInPath reports whether a redirect to this URL asks the visitor to sign in
// first, or to go on signing in. location is a path or a URL.
func (s *Preset) SignInPath(location string) bool {
	if _, rest, ok := strings.Cut(location, "://"); ok {
		_, location, _ = strings.Cut(rest, "/")
	}
	path, _, _ := strings.Cut(location, "?")
	path, _, _ = strings.Cut(path, "#")
	segments, _ := looseSegments(path)
	return matchAny(s.SignIn, resolveDots(segments))
}

// looseSegments decodes a path once, folds its case and splits it; empty
// segments are dropped. dots says that a segment is "." or "..".
func looseSegments(path string) (segments []string, dots bool) {
	if strings.Contains(path, "%") {
		b := make([]byte, 0, len(path))
		for i := 0; i < len(path); {
			c, n := unescape(path[i:])
			if n == 0 {
				c, n = '%', 1
			}
			b = append(b, c)
			i += n
		}
		path = string(b)
	}
	path = strings.ToLower(strings.ReplaceAll(path, `\`, "/"))
	segments = make([]string, 0, 8)
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" {
			continue
		}
		segments = append(segments, segment)
		dots = dots || isDots(segment)
	}
	return segments, dots
}

func resolveDots(segments []string) []string {
	out := make([]string, 0, len(segments))
	for _, s := range segments {
		switch {
		case s == ".":
		case s != "..":
			out = append(out, s)
		case len(out) > 0:
			out = out[:len(out)-1]
		}
	}
	return out
}

// matchAny holds segments against patterns in which "*" stands for one segment.
func matchAny(patterns []string, segments []string) bool {
	for _, p := range patterns {
		if matchPattern(p, segments) {
			return true
		}
	}
	return false
}

func matchPattern(pattern string, segments []string) bool {
	i := 0
	for want := range strings.SplitSeq(pattern[1:], "/") {
		if i >= len(segments) || want != "*" && want != segments[i] {
			return false
		}
		i++
	}
	return i == len(segments)
}
