package admission

import (
	"flag"
	"os"
	"testing"
)

// TestMain runs more and longer property checks than rapid does by default,
// unless the command line says how many.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		checks := "500"
		if raceEnabled {
			checks = "150"
		}
		flag.Set("rapid.checks", checks)
		flag.Set("rapid.steps", "60")
	}
	os.Exit(m.Run())
}
