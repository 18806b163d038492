package cases

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// tokens expands {{…}} in the texts of one case. Safe for concurrent use.
type tokens struct {
	gateway string // host:port

	mu      sync.Mutex
	secrets map[string]string
	random  []string // random values given out that are long enough to search for
}

func newTokens(gateway string) *tokens {
	return &tokens{gateway: gateway, secrets: map[string]string{}}
}

// scope is what the tokens of one text refer to: the index of the request and
// the body that a signature covers.
type scope struct {
	i    int
	body []byte
}

var token = regexp.MustCompile(`\{\{([^{}]*)\}\}`)

// maxRepeat bounds {{repeat:…}}, in bytes.
const maxRepeat = 64 << 20

// expand replaces every token, innermost first. {{a..b}} enumerates: with
// several ranges in a text the last one varies fastest.
func (t *tokens) expand(text string, s scope) (string, error) {
	counter := newCounter(text, s.i)
	for depth := 0; strings.Contains(text, "{{"); depth++ {
		var failed error
		next := token.ReplaceAllStringFunc(text, func(m string) string {
			value, err := t.value(m[2:len(m)-2], s, counter)
			if err != nil && failed == nil {
				failed = err
			}
			return value
		})
		if failed != nil {
			return "", failed
		}
		if next == text || depth > 8 {
			return "", fmt.Errorf("token in %q is not closed", text)
		}
		text = next
	}
	return text, nil
}

func (t *tokens) value(name string, s scope, c *counter) (string, error) {
	word, arg, hasArg := strings.Cut(name, ":")
	switch {
	case name == "i":
		return strconv.Itoa(s.i), nil
	case name == "gw":
		return t.gateway, nil
	case name == "uuid":
		return t.uuid(), nil
	case strings.Contains(name, ".."):
		return c.next(name)
	case !hasArg && strings.HasPrefix(word, "hexupper"):
		v, err := t.hex(strings.TrimPrefix(word, "hexupper"))
		return strings.Map(func(r rune) rune { return 'A' + r%26 }, v), err
	case !hasArg && strings.HasPrefix(word, "hex"):
		return t.hex(strings.TrimPrefix(word, "hex"))
	case hasArg:
		return t.withArgument(word, arg, s)
	}
	return "", fmt.Errorf("unknown token {{%s}}", name)
}

func (t *tokens) withArgument(word, arg string, s scope) (string, error) {
	switch word {
	case "b64":
		return base64.StdEncoding.EncodeToString([]byte(arg)), nil
	case "hmac256":
		return "sha256=" + t.mac(sha256.New, arg, s.body), nil
	case "hmac256hex":
		return t.mac(sha256.New, arg, s.body), nil
	case "hmac1hex":
		return t.mac(sha1.New, arg, s.body), nil
	case "secret":
		return t.secret(arg), nil
	case "sess":
		sum := sha256.Sum256([]byte("session " + arg + t.secret("sess")))
		return hex.EncodeToString(sum[:16]), nil
	case "jwt":
		return testIDP().logoutToken(arg)
	case "repeat":
		text, count, ok := cutLast(arg, ":")
		n, err := strconv.Atoi(count)
		if !ok || err != nil || n < 0 || n*len(text) > maxRepeat {
			return "", fmt.Errorf("token {{repeat:%s}}: want repeat:text:n", arg)
		}
		return strings.Repeat(text, n), nil
	}
	return "", fmt.Errorf("unknown token {{%s:%s}}", word, arg)
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// secret is the value that a secret's name stands for, made at its first use.
func (t *tokens) secret(name string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.secrets[name] == "" {
		t.secrets[name] = "case-" + rand.Text()
	}
	return t.secrets[name]
}

func (t *tokens) mac(h func() hash.Hash, secret string, body []byte) string {
	m := hmac.New(h, []byte(t.secret(secret)))
	m.Write(body)
	return hex.EncodeToString(m.Sum(nil))
}

// maxHex bounds {{hexN}}; maxRemembered the values kept for the search in logs
// and metrics.
const (
	maxHex        = 1 << 16
	maxRemembered = 1 << 16
)

func (t *tokens) hex(digits string) (string, error) {
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > maxHex {
		return "", fmt.Errorf("unknown token {{hex%s}}", digits)
	}
	raw := make([]byte, (n+1)/2)
	rand.Read(raw)
	return t.remember(hex.EncodeToString(raw)[:n]), nil
}

func (t *tokens) uuid() string {
	raw := make([]byte, 16)
	rand.Read(raw)
	raw[6], raw[8] = raw[6]&0x0f|0x40, raw[8]&0x3f|0x80
	return t.remember(fmt.Sprintf("%x-%x-%x-%x-%x", raw[:4], raw[4:6], raw[6:8], raw[8:10], raw[10:]))
}

func (t *tokens) remember(v string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(v) >= 6 && len(t.random) < maxRemembered {
		t.random = append(t.random, v)
	}
	return v
}

func (t *tokens) remembered() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.random...)
}

// counter gives the values of the {{a..b}} ranges of one text for one index.
type counter struct {
	values []int
	errs   []error
}

var span = regexp.MustCompile(`\{\{(\d+)\.\.(\d+)\}\}`)

func newCounter(text string, i int) *counter {
	found := span.FindAllStringSubmatch(text, -1)
	c := &counter{values: make([]int, len(found))}
	for k := len(found) - 1; k >= 0; k-- {
		low, _ := strconv.Atoi(found[k][1])
		high, _ := strconv.Atoi(found[k][2])
		if high < low {
			c.errs = append(c.errs, fmt.Errorf("empty range %s", found[k][0]))
			continue
		}
		width := high - low + 1
		c.values[k] = low + i%width
		i /= width
	}
	return c
}

func (c *counter) next(name string) (string, error) {
	if len(c.errs) > 0 {
		return "", c.errs[0]
	}
	if len(c.values) == 0 {
		return "", fmt.Errorf("unknown token {{%s}}", name)
	}
	v := c.values[0]
	c.values = c.values[1:]
	return strconv.Itoa(v), nil
}
