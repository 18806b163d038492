package admission

import (
	"flag"
	"os"
	"testing"
)

// TestMain runs more property checks than rapid's default of 100 unless the
// command line says how many.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		flag.Set("rapid.checks", "500")
	}
	os.Exit(m.Run())
}
