package webhook

import "io"

const payloadField = "payload="

// payloadForm reports whether a form body is exactly one field named payload
// with a value in canonical percent-encoding. The MAC of the Gogs family does
// not cover the envelope, so anything else could have been added on the way.
func payloadForm(body []byte) bool {
	if len(body) <= len(payloadField) || string(body[:len(payloadField)]) != payloadField {
		return false
	}
	value := body[len(payloadField):]
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '%':
			if i+2 >= len(value) || !anyHex.has(value[i+1]) || !anyHex.has(value[i+2]) {
				return false
			}
			i += 2
		case c == '&' || c == ';' || c == '=' || c == '#' || c <= ' ' || c >= 0x7f:
			return false
		}
	}
	return true
}

// decodePayload writes the decoded value of a payloadForm body to w in pieces
// of at most 4 KiB, so that decoding needs no second body.
func decodePayload(w io.Writer, body []byte) {
	var piece [4096]byte
	for value := body[len(payloadField):]; len(value) > 0; {
		n, used := unescape(piece[:], value)
		value = value[used:]
		if _, err := w.Write(piece[:n]); err != nil {
			return
		}
	}
}

// unescape decodes percent-encoding from src into dst until either is used
// up, and returns the bytes written and consumed. An incomplete escape is
// copied as it stands.
func unescape(dst, src []byte) (n, used int) {
	for n < len(dst) && used < len(src) {
		c := src[used]
		switch {
		case c == '+':
			c = ' '
		case c == '%' && used+2 < len(src):
			c = unhex(src[used+1])<<4 | unhex(src[used+2])
			used += 2
		}
		dst[n] = c
		n++
		used++
	}
	return n, used
}

func unhex(c byte) byte {
	switch {
	case c >= 'a':
		return c - 'a' + 10
	case c >= 'A':
		return c - 'A' + 10
	default:
		return c - '0'
	}
}
