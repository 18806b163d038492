package integration

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// startKeeping starts a gateway whose hook at path keeps what its receiver does not take at once.
func startKeeping(t *testing.T, path, profile, keep, receiver string) *ingressSite {
	t.Helper()
	return startIngress(t, receiver, fmt.Sprintf(`webhooks {
 senders 127.0.0.1/32
}
webhook %[1]s {
 profile %[2]s
 secret_file %[3]s
 keep %[4]s
 deliver http://%[5]s%[1]s {
  tries 100
 }
}
spool %[6]s`, path, profile, secretFile(t, capturedSecret), keep, receiver, filepath.Join(harness.TempDir(t), "spool")))
}

// TestBuildbotAfterAnOutage: pushes to two repositories go on while Buildbot is down. Each is answered at once, and when it is
// back every one of them has been built, in the order of its repository.
func TestBuildbotAfterAnOutage(t *testing.T) {
	b := harness.StartBuildbot(t, capturedSecret)
	s := startKeeping(t, harness.BuildbotHook, "github", "overflow", b.Addr)
	sent := map[string][]string{}
	push := func(repository string, n, status int) {
		body := strings.ReplaceAll(githubPush("main", fmt.Sprint(n)), "team/r", repository)
		start := time.Now()
		r := mustPost(t, s.addr, githubDelivery(harness.BuildbotHook, "push", body), body)
		if r.StatusCode != status || time.Since(start) > 4*time.Second {
			t.Errorf("push %d of %s: answered %v after %v, want %d", n, repository, r, time.Since(start), status)
		}
		sent[repository] = append(sent[repository], revision(fmt.Sprint(n)))
	}
	push("team/a", 1, http.StatusOK)
	b.Stop(t)
	for n := 2; n < 12; n++ {
		push([]string{"team/a", "team/b"}[n%2], n, http.StatusAccepted)
	}
	s.waitAttempts(t)
	b.Start(t)
	harness.Eventually(t, 2*time.Minute, "a build of every push", func() error {
		built := b.Built(t)
		for repository, want := range sent {
			if got := revisions(b.Changes(t), repository); !slices.Equal(got, want) {
				return fmt.Errorf("%s has %v, want %v", repository, got, want)
			}
		}
		if built < 11 {
			return fmt.Errorf("%d builds, want 11", built)
		}
		return nil
	})
	push("team/a", 12, http.StatusOK) // nothing is kept any more
}

// waitAttempts waits until deliveries have been tried again, in vain.
func (s *ingressSite) waitAttempts(t *testing.T) {
	t.Helper()
	harness.Eventually(t, time.Minute, "attempts at a receiver that is down", func() error {
		if n := s.Series(t, `caddy_admission_spool_attempts_total{kind="replayed",outcome="unreachable"}`); n < 2 {
			return fmt.Errorf("%v replayed", n)
		}
		return nil
	})
}

// revisions are those of a repository in the order in which they came first; one that came twice counts once.
func revisions(changes []harness.Change, repository string) (all []string) {
	for _, c := range changes {
		if c.Project == repository && !slices.Contains(all, c.Revision) {
			all = append(all, c.Revision)
		}
	}
	return all
}

// TestHookServerAfterAnOutage: the same with Debian's webhook and deliveries of a real Gitea. It runs its command once for each.
func TestHookServerAfterAnOutage(t *testing.T) {
	server := harness.StartHookServer(t, capturedSecret)
	s := startKeeping(t, "/hooks/gitea", "gitea", "overflow", server.Addr)
	server.Stop(t)
	want := 0
	for _, v := range capturedVectors(t) {
		if v.Expect != "accept" || strings.Contains(v.ID, "form") { // which this receiver cannot check
			continue
		}
		start := time.Now()
		r := mustPost(t, s.addr, v.head("/hooks/gitea"), string(v.Body))
		if r.StatusCode != http.StatusAccepted || time.Since(start) > 4*time.Second {
			t.Errorf("%s: answered %v after %v", v.ID, r, time.Since(start))
		}
		want++
	}
	s.waitAttempts(t)
	server.Restart(t)
	harness.Eventually(t, 2*time.Minute, "the command of every delivery", func() error {
		if fired := len(server.Fired(t)); fired < want {
			return fmt.Errorf("fired %d times, want %d", fired, want)
		}
		return nil
	})
	if fired := len(server.Fired(t)); fired != want {
		t.Errorf("fired %d times, want %d", fired, want)
	}
}

// TestCapturedDeliveryIsAnsweredInTime: a delivery of a real Gitea, which gives up after 5 s, is answered within 4 s by a hook of
// every mode although the receiver never answers. The half second is for
// a machine that is busy.
func TestCapturedDeliveryIsAnsweredInTime(t *testing.T) {
	v := capturedVectors(t)[0]
	for keep, status := range map[string]int{"off": http.StatusGatewayTimeout, "overflow": http.StatusAccepted, "always": http.StatusAccepted} {
		t.Run(keep, func(t *testing.T) {
			t.Parallel()
			worker := harness.StartReceiver(t)
			worker.Hold()
			s := startKeeping(t, "/hooks/gitea", "gitea", keep, worker.Addr)
			start := time.Now()
			r := mustPost(t, s.addr, v.head("/hooks/gitea"), string(v.Body))
			took := time.Since(start)
			t.Logf("answered %d after %v", r.StatusCode, took)
			if r.StatusCode != status || took > 4*time.Second+500*time.Millisecond {
				t.Errorf("answered %v after %v, want %d within 4 s", r, took, status)
			}
		})
	}
}
