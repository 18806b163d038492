// Package scenario plays text files of steps and what they print, in fake time,
// for the tests of several packages.
package scenario

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

var update = flag.Bool("update", false, "rewrite the expected output of scenarios")

// Player is one running scenario.
type Player struct {
	Step func(line string) string // runs one step, without its mark, and returns what it prints
	End  func()                   // ends what the steps have left
}

// Test plays testdata/scenarios/*.txt, each in a bubble of its own, and
// compares what is printed with the file. A line that starts with "> " is a
// step, the lines below it what it prints; # begins a comment. With -update the
// files are rewritten.
func Test(t *testing.T, begin func(*testing.T) Player) {
	t.Helper()
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			synctest.Test(t, func(t *testing.T) { play(begin(t), string(text), &got) })
			switch {
			case got.String() == string(text):
			case *update:
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			default:
				t.Errorf("got\n%s\nwant\n%s", got.String(), text)
			}
		})
	}
}

func play(p Player, text string, out *bytes.Buffer) {
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "> "):
			out.WriteString(line)
			out.WriteString(p.Step(strings.TrimSpace(line[2:])))
		case strings.HasPrefix(line, "#"), strings.TrimSpace(line) == "":
			out.WriteString(line)
		}
	}
	p.End()
}
