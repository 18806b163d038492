package spool

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// contractDoc is docs/recovery.md: the prose of testdata/recovery.md around
// what the table says.
func contractDoc(t *testing.T) []byte {
	t.Helper()
	prose, err := os.ReadFile("testdata/recovery.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(prose)
	for mark, part := range map[string]string{"<!-- who -->\n": whoTable(), "<!-- how -->\n": howSections()} {
		if strings.Count(text, mark) != 1 {
			t.Fatalf("testdata/recovery.md needs one line %q", mark)
		}
		text = strings.Replace(text, mark, part, 1)
	}
	return []byte(text)
}

// whoTable has a row a way and a column a group of providers that agree.
func whoTable() string {
	var b strings.Builder
	groups := agreeing()
	b.WriteString("| refused because | the sender sees |")
	for _, g := range groups {
		fmt.Fprintf(&b, " %s |", strings.Join(g, ", "))
	}
	b.WriteString("\n|" + strings.Repeat("---|", 2+len(groups)) + "\n")
	for _, w := range Ways() {
		fmt.Fprintf(&b, "| `%s`: %s | %s |", w, wayText[w], wayStatus[w])
		for _, g := range groups {
			fmt.Fprintf(&b, " %s |", Recovery(g[0], w).Who)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// agreeing groups providers that have the same recoverer for every way.
func agreeing() (groups [][]string) {
	at := map[string]int{}
	for _, p := range Providers() {
		key := ""
		for _, w := range Ways() {
			key += string(Recovery(p, w).Who) + " "
		}
		if i, ok := at[key]; ok {
			groups[i] = append(groups[i], p)
			continue
		}
		at[key] = len(groups)
		groups = append(groups, []string{p})
	}
	return groups
}

func howSections() string {
	var b strings.Builder
	for _, p := range Providers() {
		s := senders[p]
		fmt.Fprintf(&b, "### %s (`%s`)\n\n", s.label, p)
		if s.retry != "" {
			var ways []string
			for _, w := range s.retries {
				ways = append(ways, "`"+string(w)+"`")
			}
			fmt.Fprintf(&b, "- By itself, after %s: %s.\n", strings.Join(ways, ", "), s.retry)
		}
		fmt.Fprintf(&b, "- Otherwise: %s.\n", s.how)
		if s.api != "" {
			fmt.Fprintf(&b, "- API: `%s`\n", strings.ReplaceAll(s.api, ", ", "`, `"))
		}
		if s.within != "" {
			fmt.Fprintf(&b, "- Possible for: %s.\n", s.within)
		}
		if s.sameID {
			b.WriteString("- A redelivery has the same delivery id.\n")
		} else {
			b.WriteString("- A redelivery has a new delivery id, or it is not known to keep it.\n")
		}
		if s.note != "" {
			fmt.Fprintf(&b, "- Beware: %s.\n", s.note)
		}
		b.WriteString("\n")
	}
	return b.String()
}

var wayText = map[Way]string{
	WayOverload: "a bucket or a pool was full", WaySpoolFull: "a bound of the spool is reached",
	WaySpoolDown: "the spool's disk failed, or no hook of that name is active",
	WayDeadline:  "the body or the answer took too long",
	WayUpstream:  "`keep off` and the receiver failed or could not be reached",
	WayRefused:   "the receiver refused a fresh delivery for good",
	WaySignature: "not verified", WayShape: "method, type, encoding or headers", WayTooLarge: "above the size cap",
	WayExpired: "the signed time was over", WayDead: "acknowledged, then set aside by the spool",
	WayDamaged: "acknowledged, then damaged on the disk",
}
