package classify

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// docs/classes.md lists every default of every preset.
func TestPresetsAreDocumented(t *testing.T) {
	raw, err := os.ReadFile("../../docs/classes.md")
	if err != nil {
		t.Fatal(err)
	}
	for p := range numProfiles {
		if s := p.Preset(); s != nil && !strings.Contains(string(raw), presetRow(p, s)) {
			t.Errorf("docs/classes.md lacks the row\n%s", presetRow(p, s))
		}
	}
}

func presetRow(p Profile, s *Preset) string {
	where := map[Layout]string{AfterRepository: "`/owner/name/…`: ", AfterDash: "`/…/-/…`: ", Anywhere: "any depth: "}[s.Layout]
	cells := []string{"`" + p.String() + "`", where + code(s.Dear)}
	if len(s.Queries) > 0 {
		cells[1] += "; with a parameter " + code(s.Queries)
	}
	if len(s.API) > 0 {
		cells[1] += "; " + code(s.API)
	}
	return fmt.Sprintf("| %s | %s | %s | %s |", strings.Join(cells, " | "), code(s.Streams), code([]string{s.Cookie}), code([]string{s.WhoAmI, s.JobAPI, s.Session}))
}

func code(names []string) string {
	var out []string
	for _, n := range names {
		if n != "" && (len(out) == 0 || out[len(out)-1] != "`"+n+"`") {
			out = append(out, "`"+n+"`")
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, " ")
}
