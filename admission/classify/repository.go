package classify

import (
	"strings"
	"unicode/utf8"
)

const upperHex = "0123456789ABCDEF"

// normalise reads the repository part of a path. It returns the part decoded
// once and its canonical spelling: single slashes, percent-encoding only where
// RFC 3986 demands it, in upper case. It fails when servers would not agree on
// what the part means: dot segments, an encoded slash, a backslash, a control
// character, a blank, a raw #, invalid UTF-8 or an invalid escape.
// A part that is canonical already costs no allocation.
func normalise(raw string) (decoded, canonical string, ok bool) {
	if isPlain(raw) {
		return raw, raw, true
	}
	var d, c strings.Builder
	d.Grow(len(raw))
	c.Grow(len(raw))
	for segment := range strings.SplitSeq(raw, "/") {
		if segment == "" {
			continue
		}
		start := d.Len()
		d.WriteByte('/')
		c.WriteByte('/')
		if !normaliseSegment(segment, &d, &c) || isDots(d.String()[start+1:]) {
			return "", "", false
		}
	}
	decoded, canonical = d.String(), c.String()
	if canonical == raw {
		canonical = raw
	}
	return decoded, canonical, utf8.ValidString(decoded)
}

func normaliseSegment(segment string, d, c *strings.Builder) bool {
	for i := 0; i < len(segment); {
		b, n := unescape(segment[i:])
		if n == 0 || !isAgreed(b, n == 3) {
			return false
		}
		i += n
		d.WriteByte(b)
		if isPathChar(b) {
			c.WriteByte(b)
			continue
		}
		c.WriteByte('%')
		c.WriteByte(upperHex[b>>4])
		c.WriteByte(upperHex[b&15])
	}
	return true
}

// isAgreed reports whether servers agree on what b means inside a segment.
func isAgreed(b byte, escaped bool) bool {
	switch {
	case b < ' ', b == 0x7f, b == '\\', b == '/':
		return false
	case b == ' ', b == '#':
		return escaped
	}
	return true
}

// isPlain reports whether raw is canonical without any percent-encoding.
func isPlain(raw string) bool {
	start := 1
	for i := range len(raw) {
		switch c := raw[i]; {
		case c == '/':
			if i > 0 && (i == start || isDots(raw[start:i])) {
				return false
			}
			start = i + 1
		case !isPathChar(c):
			return false
		}
	}
	return raw == "" || start < len(raw) && !isDots(raw[start:])
}

func isDots(segment string) bool { return segment == "." || segment == ".." }

// unescape returns the first byte of s, decoded, and how many bytes spell it:
// 1, 3, or 0 for an invalid escape. s is not empty.
func unescape(s string) (b byte, n int) {
	if s[0] != '%' {
		return s[0], 1
	}
	if len(s) < 3 {
		return 0, 0
	}
	high, ok1 := unhex(s[1])
	low, ok2 := unhex(s[2])
	if !ok1 || !ok2 {
		return 0, 0
	}
	return high<<4 | low, 3
}

func unhex(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}

// isPathChar reports whether c may stand in a path segment unescaped (RFC 3986,
// pchar).
func isPathChar(c byte) bool {
	return isUnreserved(c) || strings.IndexByte("!$&'()*+,;=:@", c) >= 0
}
