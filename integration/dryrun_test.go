package integration

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

var errNoLine = errors.New("none yet")

// TestDryRun takes the one anonymous place. In dry run the next fetch passes all the same and is counted and logged as one that
// would have been refused; with dry run in another class only, it is refused.
func TestDryRun(t *testing.T) {
	s := newSite(t, "admission {\n total 5\n wait off\n dry_run\n}")
	slow, quick := s.apache.Repository(t, "slow.git"), s.apache.Repository(t, "quick.git")
	release := s.occupy(t, slow, 1, 1)
	ask := func() (*http.Response, string) {
		return harness.Ask(t, harness.Loopback(2), s.addr, harness.FetchRequest(path(quick), quick.Head, "Connection: close"))
	}
	for range 3 {
		if resp, body := ask(); resp.StatusCode != http.StatusOK || len(body) < 100 {
			t.Fatalf("%s %.100q in dry run", resp.Status, body)
		}
	}
	c := s.Class(t, "anonymous")
	if c.Decisions["would_refuse"] != 3 || c.Refused() != 0 || c.InUse != 1 {
		t.Errorf("decisions %v, %d in use; want three that would have been refused", c.Decisions, c.InUse)
	}
	if !strings.Contains(s.Metrics(t), `class="anonymous",outcome="would_refuse",pool="default"} 3`) {
		t.Error("the metrics do not count what would have been refused")
	}
	harness.Eventually(t, 30*time.Second, "a line in the log", func() error {
		if !strings.Contains(s.Output(), "would refuse") {
			return errNoLine
		}
		return nil
	})
	if err := s.Reload(s.config("admission {\n total 5\n wait off\n class push {\n dry_run\n }\n}")); err != nil {
		t.Fatal(err)
	}
	resp, body := ask()
	wantRefusal(t, resp, body, http.StatusServiceUnavailable)
	release()
	s.WaitIdle(t, 30*time.Second)
}
