// Package deptest holds the import rules of this module as tests. Each rule
// gives the reason why it exists.
package deptest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/caddy-admission/gateway"

// rule says what a package must not depend on, directly or through others.
type rule struct {
	pkg    string   // below the module; a trailing /… covers those below it
	banned []string // an import path, or with a trailing /… everything below it
	only   []string // if set, the only imports outside the standard library, directly or through others
	reason string
}

var rules = []rule{
	{
		pkg:    "admission",
		only:   []string{"golang.org/x/time/rate"},
		banned: []string{"net/http", "log", "log/slog"},
		reason: "the engine is tested in seconds, without a server, a registry or a logger",
	},
	{
		pkg:    "admission/classify",
		banned: []string{"net/http"},
		only:   []string{module + "/admission", "golang.org/x/time/rate"},
		reason: "classifying is pure: facts in, class out",
	},
	{
		pkg:    "admission/…",
		banned: []string{"github.com/caddyserver/…", "go.uber.org/zap/…", "github.com/prometheus/…", module + "/caddymodule/…", module + "/integration/…", module + "/internal/adminapi"},
		reason: "only the adapter knows Caddy; tests of everything else must not link it",
	},
	{
		pkg:    "admission/identity",
		banned: siblings("admission/identity"),
		reason: "identity, classify, webhook, logout, spool and lease are joined in gate only",
	},
	{
		pkg:    "admission/classify",
		banned: siblings("admission/classify"),
		reason: "identity, classify, webhook, logout, spool and lease are joined in gate only",
	},
	{
		pkg:    "admission/webhook",
		banned: siblings("admission/webhook"),
		reason: "identity, classify, webhook, logout, spool and lease are joined in gate only",
	},
	{
		pkg:    "admission/logout",
		banned: siblings("admission/logout"),
		reason: "identity, classify, webhook, logout, spool and lease are joined in gate only",
	},
	{
		pkg:    "admission/spool",
		banned: siblings("admission/spool"),
		reason: "identity, classify, webhook, logout, spool and lease are joined in gate only",
	},
	{
		pkg:    "internal/adminapi",
		banned: []string{"github.com/caddyserver/…", "github.com/prometheus/…", module + "/caddymodule/…", module + "/admission/gate/…"},
		reason: "the types of the admin endpoint are shared by server and command; a client of it links no Caddy",
	},
	{
		pkg:    "integration/…",
		banned: []string{module + "/admission/…", module + "/caddymodule/…", module + "/internal/…"},
		reason: "integration tests see only the binary, its ports and its files",
	},
	{
		pkg:    "cmd/xcaddy-build",
		banned: []string{module + "/admission/…", module + "/caddymodule/…"},
		reason: "the builder drives xcaddy and links no product package",
	},
}

// joined are the packages that gate joins and that never import each other.
var joined = []string{"classify", "identity", "webhook", "logout", "spool", "lease", "gate"}

func siblings(pkg string) (banned []string) {
	for _, s := range joined {
		if s = "admission/" + s; s != pkg {
			banned = append(banned, module+"/"+s+"/…")
		}
	}
	return banned
}

type goPackage struct {
	ImportPath string
	Standard   bool
	Deps       []string
	Imports    []string
	Error      *struct{ Err string }
}

// list runs go list -deps and returns every package by its path.
func list(t *testing.T) map[string]goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-e", "-json=ImportPath,Standard,Deps,Imports,Error", module+"/...")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("go list: %v\n%s", err, errs.String())
	}
	all := make(map[string]goPackage)
	for dec := json.NewDecoder(&out); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

// matches reports whether path is pattern or, with a trailing /…, lies at or
// below it.
func matches(pattern, path string) bool {
	if base, ok := strings.CutSuffix(pattern, "/…"); ok {
		return path == base || strings.HasPrefix(path, base+"/")
	}
	return path == pattern
}

func TestImportDirection(t *testing.T) {
	all := list(t)
	for _, r := range rules {
		found := false
		for path, p := range all {
			if !matches(module+"/"+r.pkg, path) {
				continue
			}
			found = true
			for _, problem := range violations(r, p, all) {
				t.Errorf("%s imports %s, directly or through others: %s", path, problem, r.reason)
			}
		}
		if !found && strings.HasPrefix(r.pkg, "admission") {
			t.Errorf("no package matches %q: the rule checks nothing", r.pkg)
		}
	}
}

// TestOnlyTheAdapterImportsCaddy: besides it only cmd/caddy, the plain main
// package that tests build, and the root, through which xcaddy builds the module.
func TestOnlyTheAdapterImportsCaddy(t *testing.T) {
	for path, p := range list(t) {
		if !matches(module+"/…", path) || path == module ||
			matches(module+"/caddymodule/…", path) || path == module+"/cmd/caddy" {
			continue
		}
		for _, dep := range p.Imports {
			if matches("github.com/caddyserver/caddy/…", dep) || matches(module+"/caddymodule/…", dep) {
				t.Errorf("%s imports %s; only caddymodule does, and the root package imports only that", path, dep)
			}
		}
	}
}

func violations(r rule, p goPackage, all map[string]goPackage) (found []string) {
	for _, dep := range p.Deps {
		banned := slices.ContainsFunc(r.banned, func(b string) bool { return matches(b, dep) })
		foreign := len(r.only) > 0 && !all[dep].Standard && !slices.Contains(r.only, dep)
		if banned || foreign {
			found = append(found, dep)
		}
	}
	return found
}

// TestRulesFindViolations keeps the check itself honest.
func TestRulesFindViolations(t *testing.T) {
	all := map[string]goPackage{"net/http": {Standard: true}, "fmt": {Standard: true}, "example.com/x": {}}
	p := goPackage{Deps: []string{"fmt", "net/http", "example.com/x", module + "/admission/gate"}}
	for _, tc := range []struct {
		r    rule
		want []string
	}{
		{rule{banned: []string{"net/http"}}, []string{"net/http"}},
		{rule{only: []string{module + "/admission/gate"}}, []string{"example.com/x"}},
		{rule{banned: []string{module + "/admission/…"}}, []string{module + "/admission/gate"}},
		{rule{banned: siblings("admission/identity")}, []string{module + "/admission/gate"}},
		{rule{banned: []string{"net"}}, nil},
	} {
		if got := violations(tc.r, p, all); !slices.Equal(got, tc.want) {
			t.Errorf("%+v found %q; want %q", tc.r, got, tc.want)
		}
	}
}
