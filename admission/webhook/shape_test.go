package webhook

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
)

// patternFile is the published table of senders; its regular expressions are
// the oracle for the hand-written shapes.
type patternFile struct {
	All      []string `json:"all_signature_headers"`
	MaxLen   int      `json:"header_value_max_len"`
	Profiles map[string]struct {
		Canonical, Format string
		FormatMust        string `json:"format_must"`
		Signed            string
		Companions        map[string]struct {
			Format     string
			MAC        string
			SameDigest bool `json:"same_digest"`
		}
		Require, Optional map[string]string
		ContentTypes      []string `json:"content_types"`
		MaxBody           int64    `json:"max_body"`
		MaxBodyForm       int64    `json:"max_body_form"`
		Deadline          int      `json:"gateway_deadline_s"`
		Tolerance         int      `json:"tolerance_s"`
		DeliveryID        string   `json:"delivery_id"`
		Event             string
	}
}

func readPatterns(t testing.TB) *patternFile {
	t.Helper()
	raw, err := os.ReadFile("testdata/profiles.json")
	if err != nil {
		t.Fatal(err)
	}
	f := &patternFile{}
	if err := json.Unmarshal(raw, f); err != nil {
		t.Fatal(err)
	}
	return f
}

// oracle is one header of one profile with both readings of its form.
type oracle struct {
	name string
	ours shape
	want func(string) bool
}

func oracles(t testing.TB) (list []oracle) {
	f := readPatterns(t)
	for name, p := range f.Profiles {
		ours, ok := Lookup(name)
		if !ok {
			t.Fatalf("no profile %s", name)
		}
		add := func(header string, ok shape, patterns ...string) {
			if ok == nil {
				t.Errorf("%s: no rule for %s", name, header)
				return
			}
			var all []*regexp.Regexp
			for _, p := range patterns {
				if p != "" {
					all = append(all, regexp.MustCompile(p))
				}
			}
			list = append(list, oracle{name + " " + header, ok, func(v string) bool {
				for _, r := range all {
					if !r.MatchString(v) {
						return false
					}
				}
				return true
			}})
		}
		add(p.Canonical, ours.canonical.ok, p.Format, p.FormatMust)
		for h, c := range p.Companions {
			if found := ours.companion(http.CanonicalHeaderKey(h)); found != nil {
				add(h, found.ok, c.Format)
			} else {
				t.Errorf("%s: companion %s is missing", name, h)
			}
		}
		for h, pattern := range p.Require {
			add(h, ruleFor(ours.required, h), pattern)
		}
		for h, pattern := range p.Optional {
			if r := ruleFor(ours.required, h); r == nil {
				add(h, ruleFor(ours.optional, h), pattern)
			}
		}
	}
	return list
}

func ruleFor(rules []rule, header string) shape {
	for _, r := range rules {
		if r.name == http.CanonicalHeaderKey(header) {
			return r.ok
		}
	}
	return nil
}

// TestTableMatchesPublished compares every number and name of the table.
func TestTableMatchesPublished(t *testing.T) {
	f := readPatterns(t)
	if len(f.Profiles) != 13 || len(f.All) != len(signatureHeaders) || f.MaxLen != maxHeaderValue {
		t.Fatalf("%d profiles, %d signature headers", len(f.Profiles), len(f.All))
	}
	for name, want := range f.Profiles {
		p, _ := Lookup(name)
		if p.MaxBody != want.MaxBody || p.MaxBodyForm != want.MaxBodyForm || int(p.Deadline.Seconds()) != want.Deadline || int(p.Tolerance.Seconds()) != want.Tolerance {
			t.Errorf("%s: caps %d, %d, deadline %v, tolerance %v", name, p.MaxBody, p.MaxBodyForm, p.Deadline, p.Tolerance)
		}
		if (p.MaxBodyForm > 0) != (len(want.ContentTypes) == 2) || p.payload != (want.Signed == "payload") || len(p.companions) != len(want.Companions) {
			t.Errorf("%s: forms, signed bytes or companions differ", name)
		}
		for h, c := range want.Companions {
			if got := p.companion(http.CanonicalHeaderKey(h)); got == nil || got.sameDigest != c.SameDigest || got.sha1 != (c.MAC == "hmac_sha1") {
				t.Errorf("%s: companion %s", name, h)
			}
		}
		if !strings.HasPrefix(want.DeliveryID, "json:") && want.DeliveryID != "forge header" && p.id.header != http.CanonicalHeaderKey(want.DeliveryID) {
			t.Errorf("%s: delivery id from %q", name, p.id.header)
		}
	}
}

// TestShapesAgainstPatterns mutates values of the right form and compares the
// hand-written shape with the published pattern.
func TestShapesAgainstPatterns(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	seeds := shapeSeeds()
	for _, o := range oracles(t) {
		agree := map[bool]int{}
		for range 4000 {
			v := mutate(rnd, seeds[rnd.IntN(len(seeds))])
			if strings.ContainsAny(v, "\n\r") || len(v) > maxHeaderValue {
				continue // no header value of a request can hold one
			}
			if got, want := o.ours(v), o.want(v); got != want {
				t.Errorf("%s: %q is %t, the pattern says %t", o.name, v, got, want)
				break
			}
			agree[o.ours(v)]++
		}
		if agree[true] == 0 || agree[false] == 0 {
			t.Errorf("%s: %d accepted, %d refused: the comparison says nothing", o.name, agree[true], agree[false])
		}
	}
}

func shapeSeeds() []string {
	hex := strings.Repeat("0123456789abcdef", 4)
	return []string{
		"sha256=" + hex, "sha1=" + hex[:40], hex, "sha1=", "sha256=", "", "push", "Push Hook", "repo:push", "x:y:z",
		"72d3162e-cc78-11e3-81ab-4c9367dc0958", "{72d3162e-cc78-11e3-81ab-4c9367dc0958}", "1", "12345678901", "3.12",
		"v1," + strings.Repeat("A", 43) + "=", "v1a," + strings.Repeat("B", 86) + "==",
		"v1," + strings.Repeat("A", 43) + "= v1," + strings.Repeat("C", 43) + "=", "v22b," + strings.Repeat("A", 20),
		"v1," + strings.Repeat("A", 44) + " v1," + strings.Repeat("C", 43) + "=",
		"Basic dTpw", "Basic =", strings.Repeat("A", 86) + "==", "a.b.c", "eyJ.eyJ.sig-_", "repository", "host.example",
	}
}

func mutate(rnd *rand.Rand, v string) string {
	b := []byte(v)
	for range rnd.IntN(3) {
		alphabet := "0aAzZ9gG-_.:=,+/ {}~!\t\x7f\x80v1"
		c := alphabet[rnd.IntN(len(alphabet))]
		switch i := rnd.IntN(len(b) + 1); {
		case rnd.IntN(3) == 0 || i == len(b):
			b = append(b[:i], append([]byte{c}, b[i:]...)...)
		case rnd.IntN(2) == 0:
			b[i] = c
		default:
			b = append(b[:i], b[i+1:]...)
		}
	}
	return string(b)
}
