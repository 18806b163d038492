package identity

import (
	"bufio"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
)

func TestParseForms(t *testing.T) {
	s := NewStore()
	encode := base64.StdEncoding.EncodeToString
	big := strings.Repeat("x", maxAuthorization)
	for _, test := range []struct {
		name  string
		lines []string
		want  Form
	}{
		{"no line", nil, None},
		{"basic", []string{basic("u", "pw")}, Basic},
		{"lower case, as actions/checkout sends it", []string{"basic " + encode([]byte("x-access-token:tok"))}, Basic},
		{"upper case", []string{"BASIC " + encode([]byte("u:pw"))}, Basic},
		{"bearer", []string{"Bearer abc.def~1+2/3-4_5"}, Bearer},
		{"bearer in capitals", []string{"BEARER abc"}, Bearer},
		{"token", []string{"token 0123456789abcdef"}, Token},
		{"Token", []string{"Token 0123456789abcdef"}, Token},
		{"padded bearer", []string{"Bearer YWI="}, Bearer},
		{"padded url-safe bearer", []string{"Bearer _-8="}, Bearer},
		{"password with colons", []string{basic("u", "a:b:c")}, Basic},
		{"password beyond ASCII", []string{basic("jürgen", "geheimnis-ß")}, Basic},
		{"user only", []string{basic("tok", "")}, Basic},
		{"longest", []string{"Bearer " + big[:maxAuthorization-7]}, Bearer},

		{"empty", []string{""}, Unusable},
		{"scheme alone", []string{"Basic"}, Unusable},
		{"scheme and space", []string{"Basic "}, Unusable},
		{"bearer without token", []string{"Bearer "}, Unusable},
		{"negotiate", []string{"Negotiate YIIabc=="}, Unusable},
		{"ntlm", []string{"NTLM TlRMTVNTUAAB"}, Unusable},
		{"digest", []string{`Digest username="u", response="x"`}, Unusable},
		{"unknown scheme", []string{"Foo dTpw"}, Unusable},
		{"two lines", []string{basic("u", "pw"), basic("u", "pw")}, Unusable},
		{"two lines, second empty", []string{basic("u", "pw"), ""}, Unusable},
		{"two spaces", []string{"Basic  dTpw"}, Unusable},
		{"tab", []string{"Basic\tdTpw"}, Unusable},
		{"leading space", []string{" Basic dTpw"}, Unusable},
		{"trailing blank", []string{"Basic dTpw "}, Unusable},
		{"trailing junk", []string{"Basic dTpw!!"}, Unusable},
		{"trailing padding", []string{"Basic dTpw="}, Unusable},
		{"comma", []string{"Basic dTpw, x"}, Unusable},
		{"comma and scheme", []string{"Basic dTpw, Basic dTpw"}, Unusable},
		{"missing padding", []string{"Basic dTpwdw"}, Unusable},
		{"padding bits set", []string{"Basic dTpwdx=="}, Unusable},
		{"line break inside", []string{"Basic dT\r\npw"}, Unusable},
		{"line breaks that keep the length", []string{"Basic dT\r\n\r\npw"}, Unusable},
		{"line feeds behind", []string{"Basic dTpw\n\n\n\n"}, Unusable},
		{"line break behind", []string{"Basic dTpw\n"}, Unusable},
		{"base64url in basic", []string{"Basic dTo_Pz8="}, Unusable},
		{"no colon", []string{"Basic " + encode([]byte("user"))}, Unusable},
		{"only a colon", []string{basic("", "")}, Unusable},
		{"only x-oauth-basic", []string{basic("", "x-oauth-basic")}, Unusable},
		{"control character", []string{basic("u", "pw\x00")}, Unusable},
		{"line feed in password", []string{basic("u", "pw\n")}, Unusable},
		{"too long", []string{"Bearer " + big[:maxAuthorization-6]}, Unusable},
		{"token with space", []string{"token a b"}, Unusable},
		{"token with quotes", []string{`token "abc"`}, Unusable},
		{"padding only", []string{"Bearer ===="}, Unusable},
		{"one = too many", []string{"Bearer YWI=="}, Unusable},
		{"padding in the middle", []string{"Bearer YW=I"}, Unusable},
		{"padding on what is no base64", []string{"Bearer a.b="}, Unusable},
		{"padding bits set in token", []string{"Bearer YWJ="}, Unusable},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := s.Parse(header(test.lines...))
			if c.Form != test.want {
				t.Fatalf("%q is %v, want %v", test.lines, c.Form, test.want)
			}
			if usable := test.want >= Basic; c.Usable() != usable || c.Secret.Zero() == usable {
				t.Fatalf("%q: usable %v, secret %x", test.lines, c.Usable(), c.Secret)
			}
		})
	}
}

// One secret is one identity, whatever it is dressed in.
func TestParseCostumes(t *testing.T) {
	s := NewStore()
	const secret = "0123456789abcdef0123456789abcdef01234567"
	want := s.parse(t, "Bearer "+secret).Secret
	for _, line := range []string{
		"bearer " + secret, "token " + secret, "TOKEN " + secret,
		basic("anything", secret), basic("rand1", secret), basic("rand2", secret), basic("", secret),
		basic(secret, ""), basic(secret, "x-oauth-basic"), strings.Replace(basic("x", secret), "Basic", "bAsIc", 1),
	} {
		if got := s.parse(t, line).Secret; got != want {
			t.Errorf("%q has another secret", line)
		}
	}
	for _, line := range []string{
		basic(secret, "other"), basic("u", secret+" "), basic("u", strings.ToUpper(secret)),
		"Bearer " + secret[1:], basic("u:"+secret, ""), basic("u", "x-oauth-basic"+secret),
	} {
		if s.parse(t, line).Secret == want {
			t.Errorf("%q has the same secret", line)
		}
	}
}

func TestParseUser(t *testing.T) {
	s := NewStore()
	user := func(line string) Digest { return s.parse(t, line).User }
	if user(basic("alice", "a")).Zero() || user(basic("alice", "a")) != user(basic("alice", "b")) {
		t.Error("one user name, two digests or none")
	}
	if user(basic("alice", "a")) == user(basic("bob", "a")) {
		t.Error("two user names, one digest")
	}
	for _, line := range []string{"Bearer alice", "token alice", basic("alice", ""), basic("alice", "x-oauth-basic"), basic("", "a")} {
		if !user(line).Zero() {
			t.Errorf("%q names a user", line)
		}
	}
	c := s.parse(t, basic("same", "same"))
	if c.User == c.Secret {
		t.Error("a user name and a secret of equal text have one digest")
	}
	if NewStore().parse(t, "Bearer x").Secret == s.parse(t, "Bearer x").Secret {
		t.Error("two stores share a key")
	}
}

// Decoders ignore the unused bits of a token's last character, so one token
// has up to 16 spellings that all open the door.
func TestParseJWT(t *testing.T) {
	s := NewStore()
	const head = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0."
	for signature, want := range map[string]bool{
		"AAAA": true, "AAA": true, "AA": true, "": true, "a-_9": true,
		"AAB": false, "AAC": false, "AAE": true, "AB": false, "AQ": true, "A": false, "AAAAA": false,
	} {
		for _, line := range []string{"Bearer " + head + signature, basic("u", head+signature)} {
			if got := s.Parse(header(line)).Usable(); got != want {
				t.Errorf("signature %q in %q: usable %v, want %v", signature, line[:6], got, want)
			}
		}
	}
	if s.Parse(header(basic("u", head+"AA=="))).Usable() {
		t.Error("a padded signature is usable")
	}
	if !s.Parse(header(basic("u", "eyJ.not.a/token"+"."))).Usable() {
		t.Error("a password with three dots was taken for a token")
	}
}

// What arrives after net/http has read it, obsolete line folding included.
func TestParseAfterHTTP(t *testing.T) {
	s := NewStore()
	for raw, want := range map[string]Form{
		"Authorization: Basic dTpw\r\n":                               Basic,
		"authorization: basic dTpw\r\n":                               Basic,
		"Authorization:   Basic dTpw  \r\n":                           Basic, // optional white space of RFC 9110
		"Authorization: Basic\r\n dTpw\r\n":                           Basic, // joined by one space
		"Authorization: Basic dT\r\n pw\r\n":                          Unusable,
		"Authorization: Basic dTpw\r\nauthorization: Basic dTpw\r\n":  Unusable,
		"Authorization: Basic dTpw\r\nAuthorization: Bearer abc\r\n":  Unusable,
		"Authorization: Basic dTpw, Basic dTpw\r\n":                   Unusable,
		"Authorization:\r\n":                                          Unusable,
		"X-Authorization: Basic dTpw\r\nProxy-Authorization: Foo\r\n": None,
	} {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET / HTTP/1.1\r\nHost: x\r\n" + raw + "\r\n")))
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		if got := s.Parse(r.Header).Form; got != want {
			t.Errorf("%q is %v, want %v", raw, got, want)
		}
	}
}

// Nothing of a secret stays in the buffers that are used again.
func TestParseWipes(t *testing.T) {
	s := NewStore()
	x := s.hashers.get(kindSecret)
	s.hashers.put(x)
	x = s.hashers.get(kindSecret)
	text := base64.StdEncoding.EncodeToString([]byte("alice:correct-horse"))
	if _, password, ok := x.decodeBasic(text); !ok || string(password) != "correct-horse" {
		t.Fatal("not decoded")
	}
	x.add("correct-horse")
	if !strings.Contains(string(x.buf[:]), "horse") || !strings.Contains(string(x.text[:]), "horse") {
		t.Fatal("the test looks in the wrong place")
	}
	x.digest()
	s.hashers.put(x)
	for _, b := range append(append([]byte{}, x.text[:]...), x.buf[:]...) {
		if b != 0 {
			t.Fatalf("%q stays in the buffers", b)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, line := range []string{
		"", "Basic", "Basic dTpw", "basic dTpw", "Basic  dTpw", "Basic dTpw=", "Basic dTpw, x", "Basic dTpw!!",
		"Bearer abc", "token YWI=", "Bearer eyJh.eyJh.AB", "Negotiate abc", basic("tok", "x-oauth-basic"), "Basic dT\npw", "Basic dTpw\n\n\n\n",
	} {
		f.Add(line, "Bearer abc")
	}
	s := NewStore()
	f.Fuzz(func(t *testing.T, line, other string) {
		c, d := s.Parse(header(line)), s.Parse(header(other))
		secret, ok := secretOf(line)
		if c.Usable() != ok {
			t.Fatalf("%q: usable %v, model %v", line, c.Usable(), ok)
		}
		if !ok {
			return
		}
		// Round trips: the secret in another canonical dress is the same.
		if again := s.Parse(header(basic("someone", secret))); secret != "x-oauth-basic" && again.Secret != c.Secret &&
			len(secret) < maxAuthorization/2 {
			t.Fatalf("%q: another digest as a password", line)
		}
		if theirs, usable := secretOf(other); usable && (theirs == secret) != (c.Secret == d.Secret) {
			t.Fatalf("%q and %q: equal digests %v", line, other, c.Secret == d.Secret)
		}
	})
}

// secretOf is the model of Parse: it allocates, and decodes by trying.
func secretOf(line string) (string, bool) {
	if len(line) > 8192 {
		return "", false
	}
	fields := strings.SplitN(line, " ", 2)
	if len(fields) < 2 {
		return "", false
	}
	secret := fields[1]
	switch asciiLower(fields[0]) {
	case "basic":
		plain, err := base64.StdEncoding.DecodeString(fields[1])
		if err != nil || base64.StdEncoding.EncodeToString(plain) != fields[1] {
			return "", false
		}
		for _, b := range plain {
			if b < 32 || b == 127 {
				return "", false
			}
		}
		user, password, ok := strings.Cut(string(plain), ":")
		if !ok {
			return "", false
		}
		if secret = password; password == "" || password == "x-oauth-basic" {
			secret = user
		}
	case "bearer", "token":
		const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/"
		if core := strings.TrimRight(secret, "="); strings.Trim(core, letters) != "" || core == "" {
			return "", false
		} else if core != secret {
			std, err1 := base64.StdEncoding.DecodeString(secret)
			web, err2 := base64.URLEncoding.DecodeString(secret)
			if (err1 != nil || base64.StdEncoding.EncodeToString(std) != secret) &&
				(err2 != nil || base64.URLEncoding.EncodeToString(web) != secret) {
				return "", false
			}
		}
	default:
		return "", false
	}
	if parts := strings.Split(secret, "."); len(parts) == 3 && strings.HasPrefix(secret, "eyJ") {
		raw, err := base64.RawURLEncoding.DecodeString(parts[2])
		if err != nil || base64.RawURLEncoding.EncodeToString(raw) != parts[2] {
			return "", false
		}
	}
	return secret, secret != ""
}

func asciiLower(s string) string {
	b := []byte(s)
	for i := range b {
		if b[i] >= 'A' && b[i] <= 'Z' {
			b[i] += 32
		}
	}
	return string(b)
}
