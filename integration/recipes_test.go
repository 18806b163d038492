package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-admission/gateway/integration/harness"
	"github.com/google/shlex"
)

var (
	codeSpan   = regexp.MustCompile("`([^`]+)`")
	firstCheck = regexp.MustCompile(`(?s)\n1\. (.*?)\n2\. .*\n3\. `)
	classLine  = regexp.MustCompile(`(?m)^class +(\S+)`)
)

// TestRecipes: each recipe has one Caddyfile, which TestExamplesInDocuments validates, and says what to check after installing
// it. The first check explains a request: the command is run as it stands, then with the options that follow, and must say what
// the recipe says it says.
func TestRecipes(t *testing.T) {
	g := harness.StartGateway(t, harness.Config{Sites: ""})
	for _, name := range []string{"cgit", "forgejo", "gitea", "gitlab", "gitolite", "http-backend"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(harness.Root(t), "docs", "recipes", name+".md"))
			if err != nil {
				t.Fatal(err)
			}
			blocks := caddyfileBlock.FindAllStringSubmatch(string(text), -1)
			_, after, ok := strings.Cut(string(text), "\n## After installing\n")
			check := firstCheck.FindStringSubmatch(after)
			if len(blocks) != 1 || !ok || check == nil {
				t.Fatalf("%d Caddyfiles, and three checks after installing: %v", len(blocks), check != nil)
			}
			file := filepath.Join(harness.TempDir(t), "Caddyfile")
			harness.WriteFile(t, file, asCaddyfile(blocks[0][1]))
			spans := codeSpan.FindAllStringSubmatch(check[1], -1)
			if len(spans) < 4 || len(spans)%2 != 0 {
				t.Fatalf("want a command and its class, options and their class: %q", spans)
			}
			command := ""
			for i := 0; i < len(spans); i += 2 {
				command += " " + spans[i][1]
				args, err := shlex.Split(command)
				if err != nil || args[0] != "caddy" {
					t.Fatalf("%q: %v", command, err)
				}
				out, code := g.Command(t, append(args[1:], "--adapter", "caddyfile", "--config", file)...)
				class := classLine.FindStringSubmatch(out)
				if code != 0 || class == nil || class[1] != spans[i+1][1] {
					t.Errorf("%s: want class %s, exit %d:\n%s", command, spans[i+1][1], code, out)
				}
			}
		})
	}
}
