package caddymodule

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-admission/gateway/internal/adminapi"
)

// TestStatusPage: the page and its JSON show the live counts, behind the site's own basic_auth and in front of a handler that
// answers everything.
func TestStatusPage(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	s := start(t, `
		admission team {
			total 5
			class anonymous {
				max 2
			}
		}
		basic_auth /status {
			ops $2y$04$JRGAUE1/vs/6HIpGPGSROekvKZbGLWe98k4mTKuqRkfm2Z0deGPEC
		}
		admission_status /status
		handle {
			test_upstream
		}`, func(w http.ResponseWriter, r *http.Request) { entered <- struct{}{}; <-release })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _, _ = s.try(ask{method: "POST", path: "/a.git/git-upload-pack", body: "0000", from: "192.0.2.77"})
	}()
	<-entered
	defer func() { close(release); <-ended }()

	if resp, _ := s.do(ask{path: "/status"}); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a stranger gets %s, want the 401 of basic_auth", resp.Status)
	}
	resp, page := s.do(ask{path: "/status", user: "ops", pass: "ops"})
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/html; charset=utf-8" || resp.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("got %s, %v: %s", resp.Status, resp.Header, page)
	}
	flat := strings.Join(strings.Fields(page), " ")
	for _, want := range []string{
		"<h2>team</h2>", "1 of 5 git permits in use",
		`<tr><td>anonymous</td><td><meter min="0" max="100" high="90" value="50">50 %</meter></td><td>1</td><td>0</td><td>0</td><td>0</td><td>2</td><td>1</td><td>0</td></tr>`,
		`<tr><td>other</td><td></td>`,
	} {
		if !strings.Contains(flat, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "192.0.2") || strings.Contains(page, "a.git") {
		t.Errorf("the page names a caller or a repository:\n%s", page)
	}

	resp, text := s.do(ask{path: "/status", user: "ops", pass: "ops", header: http.Header{"Accept": {"application/json"}}})
	var state adminapi.State
	if err := json.Unmarshal([]byte(text), &state); err != nil || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%v; %v: %s", err, resp.Header, text)
	}
	if n := state.Pools["team"].Classes["anonymous"].InUse; n != 1 {
		t.Errorf("the JSON says %d in use, want 1", n)
	}
	resp, _ = s.do(ask{method: "DELETE", path: "/status", user: "ops", pass: "ops"})
	if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("DELETE: %s, Allow %q", resp.Status, resp.Header.Get("Allow"))
	}
}

func TestStatusMistakes(t *testing.T) {
	for site, want := range map[string]string{
		"admission_status /a extra": `found "extra", allowed: [<matcher>]`,
		"admission_status {\nx\n}":  "found a block, allowed: none",
	} {
		if _, err := adapt("http://:1 {\n" + site + "\n}"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", site, err, want)
		}
	}
}
