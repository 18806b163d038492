package integration

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// limits is what a reload may change.
type limits struct{ reserve, max int }

func limitsOf(t *testing.T, s *site) map[string]limits {
	t.Helper()
	all := map[string]limits{}
	for name, c := range s.Pool(t).Classes {
		all[name] = limits{c.Reserve, c.Max}
	}
	return all
}

// TestReload changes the configuration of a running gateway while a place is held.
func TestReload(t *testing.T) {
	const five = "admission {\n total 5\n wait off\n}"
	s := newSite(t, five)
	slow := s.apache.Repository(t, "slow.git")
	release := s.occupy(t, slow, 1, 1)
	ask := func(source int) (*http.Response, string) {
		return harness.Ask(t, harness.Loopback(source), s.addr, harness.FetchRequest(path(slow), slow.Head, "Connection: close"))
	}
	resp, body := ask(2)
	wantRefusal(t, resp, body, http.StatusServiceUnavailable)
	before := limitsOf(t, s)

	t.Run("a rejected configuration changes no limit", func(t *testing.T) {
		taken, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		lower := "admission {\n total 6\n wait off\n class anonymous {\n max 1\n }\n}"
		startFails := s.config(lower)
		startFails.Sites += fmt.Sprintf("\nhttp://:%d {\n respond ok\n}", taken.Addr().(*net.TCPAddr).Port)
		rejected := map[string]harness.Config{
			"too small a total":             s.config("admission {\n total 3\n}"),
			"reserves above the total":      s.config("admission {\n total 8\n class push {\n reserve 9\n }\n}"),
			"a mistake in another site":     {Sites: s.config(lower).Sites + "\nhttp://:1 {\n reverse_proxy {\n  no_such_thing\n }\n}"},
			"an address already in use":     startFails,
			"an app that fails when loaded": {Sites: s.config(lower).Sites + "\nhttps://broken.test {\n tls /nonexistent.pem /nonexistent.key\n}"},
		}
		for name, c := range rejected {
			if err := s.Reload(c); err == nil {
				t.Errorf("%s: accepted", name)
			}
			for class, got := range limitsOf(t, s) {
				if got != before[class] {
					t.Errorf("%s: class %s went from %+v to %+v by a rejected reload", name, class, before[class], got)
				}
			}
		}
		resp, body := ask(3)
		wantRefusal(t, resp, body, http.StatusServiceUnavailable)
	})
	t.Run("counters and requests in flight carry over", func(t *testing.T) {
		counted := s.Class(t, "anonymous")
		if counted.InUse != 1 || counted.Refused() < 2 {
			t.Fatalf("before the reload: %+v", counted)
		}
		if err := s.Reload(s.config(five + "\n# the same limits, another configuration\nheader X-Generation 2")); err != nil {
			t.Fatal(err)
		}
		after := s.Class(t, "anonymous")
		if after.InUse != 1 || after.Refused() != counted.Refused() || after.Decisions["admitted"] != counted.Decisions["admitted"] {
			t.Errorf("after the reload %+v, before %+v", after, counted)
		}
		resp, body := ask(4)
		wantRefusal(t, resp, body, http.StatusServiceUnavailable)
		if resp.Header.Get("X-Generation") != "2" {
			t.Error("the new configuration is not in force")
		}
	})
	t.Run("a new limit holds for the request in flight too", func(t *testing.T) {
		if err := s.Reload(s.config("admission {\n total 7\n wait off\n}")); err != nil {
			t.Fatal(err)
		}
		if got := limitsOf(t, s)["anonymous"]; got == before["anonymous"] {
			t.Fatalf("the anonymous limits are still %+v", got)
		}
		held := slow.Held(t)
		harness.Hold(t, harness.Loopback(5), s.addr, path(slow), slow.Head)
		slow.WaitHeld(t, held+1)
		if got := s.Class(t, "anonymous").InUse; got != 2 {
			t.Errorf("%d anonymous permits in use, want 2: one admitted before the reload and one after", got)
		}
	})
	t.Run("limits change through the admin endpoint", func(t *testing.T) {
		if err := s.ChangeLimits("default", `{"classes":{"anonymous":{"max":-2},"psuh":{}}}`); err == nil || !strings.Contains(err.Error(), "psuh") || !strings.Contains(err.Error(), "-2") {
			t.Errorf("wrong limits: %v", err)
		}
		if err := s.ChangeLimits("default", `{"classes":{"anonymous":{"max":2}}}`); err != nil {
			t.Fatal(err)
		}
		resp, body := ask(6)
		wantRefusal(t, resp, body, http.StatusServiceUnavailable)
		if err := s.ChangeLimits("default", `{"classes":{"anonymous":{"max":3}}}`); err != nil {
			t.Fatal(err)
		}
		held := slow.Held(t)
		harness.Hold(t, harness.Loopback(7), s.addr, path(slow), slow.Head)
		slow.WaitHeld(t, held+1)
	})
	release()
	s.WaitIdle(t, 30*time.Second)
}

// TestRejectedConfigurationNamesEveryMistake starts nothing: one run of validate shows all mistakes of a Caddyfile, with the
// file and the line, what was found and what is allowed.
func TestRejectedConfigurationNamesEveryMistake(t *testing.T) {
	s := newSite(t, "admission")
	file := s.Dir + "/wrong.caddyfile"
	harness.WriteFile(t, file, `http://:1 {
	admission {
		total many
		class psuh {
			reserve 1
		}
		class push {
			caller_max -1
			wait 5
		}
		unknown thing
	}
}
`)
	out, code := s.Command(t, "validate", "--adapter", "caddyfile", "--config", file)
	if code == 0 {
		t.Errorf("accepted:\n%s", out)
	}
	for _, want := range []string{"wrong.caddyfile:3", "many", "wrong.caddyfile:4", "psuh", "wrong.caddyfile:8", "-1", "wrong.caddyfile:9", "wrong.caddyfile:11", "unknown"} {
		if !strings.Contains(out, want) {
			t.Errorf("the answer does not mention %q:\n%s", want, out)
		}
	}
}
