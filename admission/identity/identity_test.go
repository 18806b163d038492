package identity

import (
	"encoding/base64"
	"net/http"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// Helpers shared by the tests of this package.

const (
	groupA admission.Key = iota + 1
	groupB
	groupC
)

var (
	read = Target{Site: "git.example.com", Repository: "team/app", Service: "git-upload-pack"}
	push = Target{Site: "git.example.com", Repository: "team/app", Service: "git-receive-pack"}
)

// start is the beginning of the fake time of every test.
var start = time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return start.Add(d) }

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

func header(lines ...string) http.Header { return http.Header{"Authorization": lines} }

// failer is what *testing.T and *rapid.T have in common here.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func (s *Store) parse(t failer, line string) Credential {
	t.Helper()
	c := s.Parse(header(line))
	if !c.Usable() {
		t.Fatalf("%q is not usable", line)
	}
	return c
}

// small returns a store whose tables hold a handful of entries.
func small() *Store {
	return newStore(bounds{
		secrets: 3, bareAnswers: 3, restAnswers: 3, refusals: 3, flights: 2,
		followers: 2, challenges: 3, challengeMax: 8 << 10, opened: 3, refs: 3, groups: 3,
	})
}

func checkSums(t failer, s *Store) {
	t.Helper()
	v := s.Snapshot()
	if sum := uint64(v.Secrets.Held) + v.ProofsDenied + v.ProofsDisplaced + v.ProofsExpired; sum != v.ProofsMade {
		t.Fatalf("proofs made %d, held and ended %d: %+v", v.ProofsMade, sum, v)
	}
	for name, l := range map[string]Level{
		"secrets": v.Secrets, "proofs": v.Proofs, "answers": v.Answers, "refusals": v.Refusals,
		"asking": v.Asking, "challenges": v.Challenges, "challenge bytes": v.ChallengeBytes,
		"opened": v.Opened, "refs": v.Refs, "remembered": v.Remembered,
	} {
		if l.Held < 0 || l.Held > l.Max {
			t.Fatalf("%s: %d held, at most %d", name, l.Held, l.Max)
		}
	}
}
