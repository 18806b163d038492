package integration

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-admission/gateway/integration/harness"
)

// caddyfileBlock is a fenced block of a document that says it is a Caddyfile.
var caddyfileBlock = regexp.MustCompile("(?ms)^```caddyfile[^\n]*\n(.*?)^```")

// TestExamplesInDocuments adapts and validates each Caddyfile in the documents: a whole Caddyfile as it stands, and the inside
// of a site within one.
func TestExamplesInDocuments(t *testing.T) {
	root := harness.Root(t)
	g := harness.StartGateway(t, harness.Config{Sites: ""})
	found := 0
	for _, document := range documents(t, root) {
		text, err := os.ReadFile(filepath.Join(root, document))
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range caddyfileBlock.FindAllStringSubmatch(string(text), -1) {
			found++
			t.Run(fmt.Sprintf("%s/%d", document, i+1), func(t *testing.T) { validate(t, g, asCaddyfile(m[1])) })
		}
	}
	if found == 0 {
		t.Error("no document has a block marked caddyfile")
	}
}

// documents lists the Markdown files of the project: those at the top and all below docs.
func documents(t *testing.T, root string) []string {
	t.Helper()
	top, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".md") {
			top = append(top, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range top {
		top[i], err = filepath.Rel(root, top[i])
		if err != nil {
			t.Fatal(err)
		}
	}
	return top
}

// asCaddyfile makes a whole Caddyfile of a block that shows only directives.
func asCaddyfile(block string) string {
	for line := range strings.Lines(block) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		first, _, _ := strings.Cut(line, " ")
		if strings.HasPrefix(first, "{") || strings.HasPrefix(first, "(") || strings.HasPrefix(first, ":") ||
			strings.Contains(first, ".") || strings.Contains(first, "://") {
			return block
		}
		break
	}
	return "http://example.test {\n" + block + "\n}\n"
}

// secretFiles finds the lines that name files with secrets, so that they can be made.
var secretFiles = regexp.MustCompile(`(?m)^\s*secret_file\s+(.+)$`)

// validate adapts and validates one Caddyfile. Files it names are put below the gateway's directory.
func validate(t *testing.T, g *harness.Gateway, caddyfile string) {
	t.Helper()
	dir := harness.TempDir(t)
	caddyfile = inDirectory(t, caddyfile, dir)
	file := filepath.Join(dir, "Caddyfile")
	harness.WriteFile(t, file, caddyfile)
	if out, code := g.Command(t, "adapt", "--adapter", "caddyfile", "--config", file); code != 0 {
		t.Fatalf("adapt: exit %d\n%s\n%s", code, out, caddyfile)
	}
	if out, code := g.Command(t, "validate", "--adapter", "caddyfile", "--config", file); code != 0 {
		t.Fatalf("validate: exit %d\n%s\n%s", code, out, caddyfile)
	}
}

// inDirectory moves the absolute paths of a configuration below dir and makes the secrets there.
func inDirectory(t *testing.T, caddyfile, dir string) string {
	t.Helper()
	var files []string
	for _, m := range secretFiles.FindAllStringSubmatch(caddyfile, -1) {
		files = append(files, strings.Fields(m[1])...)
	}
	for _, file := range files {
		if !strings.HasPrefix(file, "/") {
			continue
		}
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("a secret of the test, long enough\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, prefix := range []string{"/etc/", "/var/"} {
		caddyfile = strings.ReplaceAll(caddyfile, " "+prefix, " "+dir+prefix)
	}
	return caddyfile
}

// TestExampleRuns validates caddyfile.example, and runs it with what belongs to the machine replaced: names and ports by free
// ports, certificates by Caddy's own, upstreams by the harness's.
func TestExampleRuns(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(harness.Root(t), "caddyfile.example"))
	if err != nil {
		t.Fatal(err)
	}
	example := string(raw)
	g := harness.StartGateway(t, harness.Config{Sites: ""})
	validate(t, g, example)
	for _, want := range []string{"admission", "trusted_proxies_strict", "protocols h1 h2", "reverse_proxy"} {
		if !strings.Contains(example, want) {
			t.Errorf("the example does not show %q", want)
		}
	}
	runExample(t, g, example)
}

var (
	siteAddress = regexp.MustCompile(`(?m)^([a-z0-9][a-z0-9.-]*\.[a-z]+)\s*\{`)
	upstreams   = regexp.MustCompile(`(?m)\b(127\.0\.0\.1|localhost):\d+`)
	globalBlock = regexp.MustCompile(`(?m)^\{\n`)
)

// runExample starts the example on free ports, with each site's name kept, and asks each site for a page.
func runExample(t *testing.T, g *harness.Gateway, example string) {
	t.Helper()
	echo := harness.StartEcho(t)
	port := harness.Port(t)
	names := []string{}
	for _, m := range siteAddress.FindAllStringSubmatch(example, -1) {
		names = append(names, m[1])
	}
	if len(names) == 0 || !globalBlock.MatchString(example) {
		t.Fatal("the example has no site with a name, or no global options")
	}
	example = siteAddress.ReplaceAllString(example, fmt.Sprintf("https://$1:%d {\n\ttls internal\n", port))
	example = upstreams.ReplaceAllString(example, echo.Addr)
	example = inDirectory(t, example, g.Dir)
	g.Stop(t)
	g.StartFile(t, globalBlock.ReplaceAllString(example, "{\n"+g.Options()+"\n"), nil)
	for _, name := range names {
		resp := harness.GetTLS(t, fmt.Sprintf("127.0.0.1:%d", port), name, "/")
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s answered %s", name, resp.Status)
		}
	}
}
