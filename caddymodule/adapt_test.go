package caddymodule

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
)

var update = flag.Bool("update", false, "write what the tests see into testdata")

// TestAdapt reads files with a Caddyfile above a line and the JSON of its
// admission handlers, or the error, below it.
func TestAdapt(t *testing.T) {
	files, err := filepath.Glob("testdata/adapt/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			config, want, ok := strings.Cut(string(raw), "----------\n")
			if !ok {
				t.Fatal("no ---------- line")
			}
			got := adaptText(t, config)
			if *update {
				if err := os.WriteFile(file, []byte(config+"----------\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// adaptText adapts a Caddyfile and returns the JSON of its admission handlers
// in order, or the error.
func adaptText(t *testing.T, config string) string {
	t.Helper()
	raw, err := adapt(config)
	if err != nil {
		return err.Error() + "\n"
	}
	var all any
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, route := range siteRoutes(all) {
		out.WriteString("chain: " + strings.Join(chain(route), " ") + "\n")
	}
	for _, h := range findHandlers(all) {
		b, err := json.MarshalIndent(h, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(b, '\n'))
	}
	return out.String()
}

func adapt(config string) ([]byte, error) {
	raw, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(config), map[string]any{"filename": "Caddyfile"})
	return raw, err
}

// siteRoutes returns the routes of the first server, one for each site.
func siteRoutes(all any) []any {
	server := all.(map[string]any)["apps"].(map[string]any)["http"].(map[string]any)["servers"].(map[string]any)["srv0"]
	return server.(map[string]any)["routes"].([]any)
}

// chain names the handlers of a route in order; a group in a route of its own
// is in brackets.
func chain(route any) (names []string) {
	handlers, _ := route.(map[string]any)["handle"].([]any)
	for _, h := range handlers {
		h := h.(map[string]any)
		if h["handler"] != "subroute" {
			names = append(names, h["handler"].(string))
			continue
		}
		names = append(names, "[")
		for _, inner := range h["routes"].([]any) {
			names = append(names, chain(inner)...)
		}
		names = append(names, "]")
	}
	return names
}

// findHandlers returns every admission handler of adapted JSON, in order.
func findHandlers(v any) (found []any) {
	switch v := v.(type) {
	case map[string]any:
		if v["handler"] == "admission" {
			return []any{v}
		}
		for _, key := range []string{"apps", "http", "servers", "srv0", "routes", "handle"} {
			found = append(found, findHandlers(v[key])...)
		}
	case []any:
		for _, e := range v {
			found = append(found, findHandlers(e)...)
		}
	}
	return found
}
