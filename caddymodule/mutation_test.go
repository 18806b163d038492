package caddymodule

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// nasty are tokens that parsers trip over.
var nasty = []string{
	"{", "}", "{}", "\n", "-1", "0", "99999999999999999999", "NaN", "Inf/s", "1e300/s", "9223372036854775807ns",
	"off", "by", "{client_ip}", "\"\"", "\"a b\"", "/", "*", "é", "class", "webhook", "/hooks/ci", "32MiB", "60s",
}

// TestDirectiveMutations reads damaged blocks: it never panics, and what it
// accepts passes the same checks when it comes back as JSON. It is no fuzz
// target because the fuzzer would compile all of Caddy anew.
func TestDirectiveMutations(t *testing.T) {
	files, err := filepath.Glob("testdata/adapt/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	var seeds []string
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		config, _, _ := strings.Cut(string(raw), "----------\n")
		if _, directive, ok := strings.Cut(config, "admission"); ok {
			seeds = append(seeds, directive)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	for range 1500 {
		lines := strings.Split(seeds[random.IntN(len(seeds))], "\n")
		for range 1 + random.IntN(3) {
			lines = mutate(random, lines)
		}
		if checkDirective(t, strings.Join(lines, "\n")) {
			accepted++
		}
	}
	if accepted < 50 {
		t.Errorf("%d of 1500 accepted: the mutations reach nothing", accepted)
	}
}

// mutate removes, repeats or swaps a line, or replaces or adds one word.
func mutate(random *rand.Rand, lines []string) []string {
	i := random.IntN(len(lines))
	words := strings.Fields(lines[i])
	switch random.IntN(5) {
	case 0:
		return slices.Delete(slices.Clone(lines), i, i+1)
	case 1:
		return slices.Insert(slices.Clone(lines), i, lines[random.IntN(len(lines))])
	case 2:
		j := random.IntN(len(lines))
		lines = slices.Clone(lines)
		lines[i], lines[j] = lines[j], lines[i]
		return lines
	case 3:
		words = append(words, nasty[random.IntN(len(nasty))])
	default:
		if len(words) > 0 {
			words[random.IntN(len(words))] = nasty[random.IntN(len(nasty))]
		}
	}
	lines = slices.Clone(lines)
	lines[i] = strings.Join(words, " ")
	return lines
}

func checkDirective(t *testing.T, directive string) (accepted bool) {
	t.Helper()
	raw, err := adapt("http://x {\n\tadmission" + directive)
	if err != nil {
		return false
	}
	var all any
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	for _, h := range findHandlers(all) {
		b, err := json.Marshal(h.(map[string]any)["pool"])
		if err != nil {
			t.Fatal(err)
		}
		var pool Pool
		if err := json.Unmarshal(b, &pool); err != nil {
			t.Fatalf("adapted JSON does not come back: %v\n%s", err, b)
		}
		if def, problems := pool.compile(); def == nil {
			t.Fatalf("accepted as a Caddyfile, refused as JSON: %v\n%s\n%s", problems, directive, b)
		}
		accepted = true
	}
	return accepted
}
