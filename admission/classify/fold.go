package classify

import "strings"

// Fold brings an escaped path to the form in which look-alikes of configured
// paths are equal: decoded once, slashes merged and trimmed at the end, dot
// segments resolved, case folded. Two paths that some server may take for one
// another have the same fold. An invalid escape stays as it is. The root is "/".
// A path that is folded already costs no allocation.
func Fold(path string) string {
	if isFolded(path) {
		return path
	}
	b := make([]byte, 0, len(path)+1)
	if !strings.HasPrefix(path, "/") {
		b = append(b, '/')
	}
	start := len(b)
	for i := 0; i < len(path); {
		c, n := unescape(path[i:])
		if n == 0 {
			c, n = '%', 1
		}
		i += n
		if c == '/' {
			b = append(endSegment(b, start), '/')
			start = len(b)
			continue
		}
		b = append(b, c)
	}
	b = endSegment(b, start)
	if len(b) == 0 {
		return "/"
	}
	return strings.ToLower(strings.ToUpper(string(b)))
}

// isFolded reports whether path is its own fold; it may miss some that are.
func isFolded(path string) bool {
	if len(path) < 2 || path[0] != '/' || path[len(path)-1] == '/' {
		return path == "/"
	}
	for i := range len(path) {
		switch c := path[i]; {
		case c == '%', c >= 0x80, 'A' <= c && c <= 'Z':
			return false
		case (c == '/' || c == '.') && i > 0 && path[i-1] == '/':
			return false // an empty segment, or one that starts with a dot
		}
	}
	return true
}
