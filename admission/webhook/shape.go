package webhook

import "strings"

// maxHeaderValue bounds a header value before any shape looks at it.
const maxHeaderValue = 4096

// shape reports whether a header value has the form a sender writes. Shapes
// read at most maxHeaderValue bytes and allocate nothing.
type shape func(string) bool

// byteSet is a set of ASCII bytes.
type byteSet [4]uint64

func setOf(ranges string, singles string) (s byteSet) {
	for i := 0; i+1 < len(ranges); i += 2 {
		for c := int(ranges[i]); c <= int(ranges[i+1]); c++ {
			s[c>>6] |= 1 << (c & 63)
		}
	}
	for i := range len(singles) {
		s[singles[i]>>6] |= 1 << (singles[i] & 63)
	}
	return s
}

func (s *byteSet) has(c byte) bool { return s[c>>6]&(1<<(c&63)) != 0 }

func (s *byteSet) all(v string) bool {
	for i := range len(v) {
		if !s.has(v[i]) {
			return false
		}
	}
	return true
}

var (
	lowerHex  = setOf("09af", "")
	anyHex    = setOf("09afAF", "")
	base64Std = setOf("azAZ09", "+/")
	base64URL = setOf("azAZ09", "-_")
	visible   = setOf("!~", "")
	digitSet  = setOf("09", "")
)

// text accepts min to max bytes of set.
func text(set byteSet, min, max int) shape {
	return func(v string) bool { return len(v) >= min && len(v) <= max && set.all(v) }
}

// hexDigest accepts prefix followed by n lower-case hexadecimal digits.
func hexDigest(prefix string, n int) shape {
	return func(v string) bool {
		return len(v) == len(prefix)+n && v[:len(prefix)] == prefix && lowerHex.all(v[len(prefix):])
	}
}

// either accepts what one of the shapes accepts.
func either(shapes ...shape) shape {
	return func(v string) bool {
		for _, ok := range shapes {
			if ok(v) {
				return true
			}
		}
		return false
	}
}

// literal accepts exactly one value.
func literal(want string) shape { return func(v string) bool { return v == want } }

// anything accepts every value but the empty one; line feeds cannot occur.
func anything(v string) bool { return v != "" }

// uuid accepts the 8-4-4-4-12 form in either case.
func uuid(v string) bool {
	if len(v) != 36 {
		return false
	}
	for i := range len(v) {
		switch i {
		case 8, 13, 18, 23:
			if v[i] != '-' {
				return false
			}
		default:
			if !anyHex.has(v[i]) {
				return false
			}
		}
	}
	return true
}

var hexDash = setOf("09afAF", "-")

// looseUUID accepts 36 digits and dashes, each brace optional.
func looseUUID(v string) bool {
	v = strings.TrimPrefix(v, "{")
	v = strings.TrimSuffix(v, "}")
	return len(v) == 36 && hexDash.all(v)
}

var (
	lowerWord = setOf("az", "_")
	eventTail = setOf("az", "_:")
)

// bitbucketEvent accepts word:words, the second part at most 64 bytes.
func bitbucketEvent(v string) bool {
	head, tail, ok := strings.Cut(v, ":")
	return ok && head != "" && lowerWord.all(head) && tail != "" && len(tail) <= 64 && eventTail.all(tail)
}

// basicValue accepts the Basic scheme with max bytes of base64 at most.
func basicValue(max int) shape {
	return func(v string) bool {
		const scheme = "Basic "
		if len(v) <= len(scheme) || v[:len(scheme)] != scheme || len(v) > len(scheme)+max {
			return false
		}
		for i := len(scheme); i < len(v); i++ {
			if !base64Std.has(v[i]) && v[i] != '=' {
				return false
			}
		}
		return true
	}
}

// jwt accepts three non-empty base64url segments.
func jwt(v string) bool {
	for i := range 3 {
		seg, rest, more := strings.Cut(v, ".")
		if seg == "" || !base64URL.all(seg) || more == (i == 2) {
			return false
		}
		v = rest
	}
	return true
}

// ed25519Value accepts the padded base64 of 64 bytes.
func ed25519Value(v string) bool {
	return len(v) == 88 && v[86:] == "==" && base64Std.all(v[:86])
}

// maxStandardEntries bounds the list of a Standard Webhooks signature header.
const maxStandardEntries = 4

// standardList accepts one to four space-separated "version,base64" entries
// of which one at least is a v1 entry of 32 bytes.
func standardList(v string) bool {
	v1 := false
	for n := 0; ; n++ {
		entry, rest, more := strings.Cut(v, " ")
		if n == maxStandardEntries || !standardEntry(entry) {
			return false
		}
		v1 = v1 || isV1(entry)
		if !more {
			return v1
		}
		v = rest
	}
}

// isV1 reports whether a well-formed entry is the HMAC-SHA256 kind.
func isV1(entry string) bool {
	return len(entry) == 3+44 && entry[:3] == "v1," && entry[46] == '=' && base64Std.all(entry[3:46])
}

func standardEntry(e string) bool {
	version, sig, ok := strings.Cut(e, ",")
	if !ok || len(version) < 2 || version[0] != 'v' {
		return false
	}
	digits := strings.TrimRight(version[1:], "abcdefghijklmnopqrstuvwxyz")
	if n := len(version) - 1 - len(digits); n > 1 || len(digits) < 1 || len(digits) > 2 || !digitSet.all(digits) {
		return false
	}
	body := strings.TrimRight(sig, "=")
	return len(sig)-len(body) <= 2 && len(body) >= 20 && len(body) <= 172 && base64Std.all(body)
}
