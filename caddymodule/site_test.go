package caddymodule

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// layoutOf provisions a Caddyfile and reads its layout.
func layoutOf(t *testing.T, config string, options ...string) *layout {
	t.Helper()
	raw, err := adapt("{\n admin off\n auto_https off\n persist_config off\n log {\n output discard\n }\n servers {\n" +
		strings.Join(options, "\n") + "\n}\n}\n" + config)
	if err != nil {
		t.Fatal(err)
	}
	var cfg caddy.Config
	if err := caddy.StrictUnmarshalJSON(raw, &cfg); err != nil {
		t.Fatal(err)
	}
	ctx, err := caddy.ProvisionContext(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	app, err := ctx.App("http")
	if err != nil {
		t.Fatal(err)
	}
	return readLayout(app.(*caddyhttp.App))
}

// TestReach: a handler that nothing can reach and a proxy that can be reached
// past it are warned about; ordinary arrangements are not.
func TestReach(t *testing.T) {
	const unreachable = "cannot be reached: reverse_proxy"
	const past = "without passing admission"
	for name, c := range map[string]struct{ site, want string }{
		"plain":                         {"admission\n reverse_proxy 127.0.0.1:1", ""},
		"in front of handle blocks":     {"admission\n handle /a/* {\n reverse_proxy 127.0.0.1:1\n }\n handle {\n reverse_proxy 127.0.0.1:2\n }", ""},
		"chosen by a matcher":           {"@inner not path /x/*\n admission @inner\n reverse_proxy 127.0.0.1:1", ""},
		"inside every handle block":     {"handle /a/* {\n admission\n reverse_proxy 127.0.0.1:1\n }\n handle {\n admission\n reverse_proxy 127.0.0.1:2\n }", ""},
		"after the proxy":               {"route {\n reverse_proxy 127.0.0.1:1\n admission\n }", unreachable},
		"after a proxy for some":        {"route {\n reverse_proxy /x/* 127.0.0.1:1\n admission\n reverse_proxy 127.0.0.1:1\n }", past},
		"in a route without a wildcard": {"route /api {\n admission\n reverse_proxy 127.0.0.1:1\n }\n reverse_proxy 127.0.0.1:1", past},
		"inside handle_path":            {"handle_path /api/* {\n admission\n }\n reverse_proxy 127.0.0.1:1", past},
		"after a catch-all handle":      {"handle {\n reverse_proxy 127.0.0.1:1\n }\n handle /never {\n respond 200\n }\n route {\n admission\n }", past},
	} {
		t.Run(name, func(t *testing.T) {
			warnings := layoutOf(t, "http://git.example.com {\n"+c.site+"\n}\n").warnings
			got := strings.Join(warnings, "\n")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("warnings %q, want %q", got, c.want)
			}
			if got != "" && !strings.Contains(got, "git.example.com") {
				t.Errorf("%q does not name the site", got)
			}
		})
	}
	other := layoutOf(t, "http://git.example.com {\n admission\n reverse_proxy 127.0.0.1:1\n}\nhttp://www.example.com {\n reverse_proxy 127.0.0.1:2\n}\n")
	if len(other.warnings) > 0 {
		t.Errorf("a site without admission: %q", other.warnings)
	}
}

// TestSiteNames: a site is named by its hosts, so that the name survives what
// happens to other sites; two handlers never share one.
func TestSiteNames(t *testing.T) {
	names := func(config string) []string {
		return slices.Sorted(maps.Values(layoutOf(t, config).sites))
	}
	got := names(`http://b.example.com, http://a.example.com {
	admission
	respond 200
}
http://git.example.com {
	handle /x/* {
		admission one
	}
	handle {
		admission two
	}
}
:8123 {
	admission
	respond 200
}
`)
	want := []string{"", "a.example.com b.example.com", "git.example.com", "git.example.com #2"}
	if !slices.Equal(got, want) {
		t.Errorf("sites %q, want %q", got, want)
	}
	alone := names("http://b.example.com, http://a.example.com {\n admission\n respond 200\n}\n")
	if !slices.Equal(alone, []string{"a.example.com b.example.com"}) {
		t.Errorf("alone: %q", alone)
	}
}

// TestSpoofedServers: trusted proxies without the strict rule are warned about
// where this module counts by address, and only there.
func TestSpoofedServers(t *testing.T) {
	const trusting = "trusted_proxies static 10.0.0.0/8"
	for name, c := range map[string]struct {
		options, site string
		want          int
	}{
		"lax":             {trusting, "admission\n respond ok", 1},
		"strict":          {trusting + "\n trusted_proxies_strict", "admission\n respond ok", 0},
		"none":            {"", "admission\n respond ok", 0},
		"lax, not for us": {trusting, "respond ok", 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := layoutOf(t, "http://git.example.com {\n"+c.site+"\n}\n", c.options)
			if len(l.spoofed) != c.want {
				t.Errorf("servers %q, want %d", l.spoofed, c.want)
			}
		})
	}
}
