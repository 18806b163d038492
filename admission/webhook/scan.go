package webhook

import (
	"bytes"
	"encoding/json"
	"strings"
)

// want is a string member to look for and where to put it.
type want struct {
	path
	to *string
}

// scanner reads the bytes of a JSON text, decoding a form's payload field on
// the way. It skips values without building them: one pass, no allocation
// that grows with the body.
type scanner struct {
	src    []byte // not yet decoded, or not yet read when raw
	form   bool
	buf    []byte // decoded piece
	pos    int
	peeked bool
	last   byte
}

func newScanner(body []byte, form bool) *scanner {
	if !form {
		return &scanner{buf: body}
	}
	if i := bytes.Index(body, []byte(payloadField)); i == 0 || (i > 0 && body[i-1] == '&') {
		body = body[i+len(payloadField):]
	}
	if i := bytes.IndexByte(body, '&'); i >= 0 {
		body = body[:i]
	}
	return &scanner{src: body, form: true, buf: make([]byte, 0, 4096)}
}

// next returns the next byte, false at the end.
func (s *scanner) next() (byte, bool) {
	if s.peeked {
		s.peeked = false
		return s.last, true
	}
	if s.pos == len(s.buf) && !s.fill() {
		return 0, false
	}
	s.last = s.buf[s.pos]
	s.pos++
	return s.last, true
}

func (s *scanner) back() { s.peeked = true }

// fill decodes the next piece, false at the end.
func (s *scanner) fill() bool {
	if !s.form || len(s.src) == 0 {
		return false
	}
	n, used := unescape(s.buf[:cap(s.buf)], s.src)
	s.buf, s.src, s.pos = s.buf[:n], s.src[used:], 0
	return true
}

// skipString reads the rest of a string whose quote was consumed, in time
// proportional to its length.
func (s *scanner) skipString() bool {
	for {
		i := bytes.IndexAny(s.buf[s.pos:], "\"\\")
		if i < 0 {
			s.pos = len(s.buf)
			if !s.fill() {
				return false
			}
			continue
		}
		s.pos += i + 1
		if s.buf[s.pos-1] == '"' {
			return true
		}
		if _, ok := s.next(); !ok { // what the backslash escapes
			return false
		}
	}
}

// token returns the next byte that is not white space.
func (s *scanner) token() (byte, bool) {
	for {
		c, ok := s.next()
		if !ok || (c != ' ' && c != '\n' && c != '\t' && c != '\r') {
			return c, ok
		}
	}
}

// str reads the rest of a string whose quote was consumed. keep bounds the
// bytes returned; a longer string is skipped and reported as "".
func (s *scanner) str(keep int) (string, bool) {
	raw, escaped := append(make([]byte, 0, 32), '"'), false
	for {
		c, ok := s.next()
		if !ok {
			return "", false
		}
		if raw = append(raw, c); len(raw) > 6*keep && (escaped || c != '"') {
			if !escaped && c == '\\' {
				_, _ = s.next() // what it escapes
			}
			return "", s.skipString()
		}
		switch {
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case c == '"':
			var v string
			if json.Unmarshal(raw, &v) != nil || len(v) > keep {
				return "", true
			}
			return v, true
		}
	}
}

// skip reads the rest of the value that starts with c. Nesting costs nothing:
// only the depth is counted.
func (s *scanner) skip(c byte) bool {
	depth := 0
	for ok := true; ok; c, ok = s.token() {
		switch c {
		case '"':
			if !s.skipString() {
				return false
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',', ':':
		default:
			if depth == 0 {
				return s.scalar()
			}
		}
		if depth <= 0 {
			return depth == 0
		}
	}
	return false
}

// scalar reads the rest of a number or word and leaves what follows it.
func (s *scanner) scalar() bool {
	for {
		c, ok := s.next()
		if !ok {
			return false
		}
		if strings.IndexByte(",]} \n\t\r", c) >= 0 {
			s.back()
			return true
		}
	}
}

// members calls each for every member of an object whose brace was consumed,
// with the first byte of its value; each must consume the value and return
// false to stop.
func (s *scanner) members(each func(name string, c byte) bool) bool {
	c, ok := s.token()
	for ok && c != '}' {
		if c == ',' {
			c, ok = s.token()
			continue
		}
		if c != '"' {
			return false
		}
		name, good := s.str(64)
		colon, good2 := s.token()
		if !good || !good2 || colon != ':' {
			return false
		}
		if c, ok = s.token(); !ok || !each(name, c) {
			return false
		}
		c, ok = s.token()
	}
	return ok
}

// findMembers fills the wants from a JSON object and stops when all are
// filled. The first occurrence counts; a text that is no object fills none.
func findMembers(s *scanner, wants []want) {
	if c, ok := s.token(); !ok || c != '{' {
		return
	}
	left := len(wants)
	take := func(object, name string, c byte) bool {
		for _, w := range wants {
			if w.object == object && w.member == name && *w.to == "" && c == '"' {
				v, ok := s.str(maxFact)
				*w.to = v
				left--
				return ok && left > 0
			}
		}
		return s.skip(c)
	}
	s.members(func(name string, c byte) bool {
		if c == '{' && holds(wants, name) {
			return s.members(func(inner string, c byte) bool { return take(name, inner, c) })
		}
		return take("", name, c)
	})
}

func holds(wants []want, object string) bool {
	for _, w := range wants {
		if w.object == object {
			return true
		}
	}
	return false
}
