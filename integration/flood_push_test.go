package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/flood"
	"github.com/caddy-admission/gateway/integration/harness"
)

// TestCloneCrowdLeavesPushesTheirPlaces fills every place that strangers can get with clones that take minutes. Pushes of
// people the gateway has never seen pass on the reserves of the three classes on a push's way.
func TestCloneCrowdLeavesPushesTheirPlaces(t *testing.T) {
	s := newCrowdSite(t, "admission {\n total 16\n class anonymous {\n max 16\n}\n}", 32<<20, flood.BackendConfig{Workers: 16})
	c := s.start(t, flood.Flood{Clients: 48, Rate: 64 << 10, Driver: flood.Fetch("/pub.git", s.tip)})
	free := 16 - 4 - 2 - 1 - 1 // what is not reserved for push, read, discovery and candidate
	harness.Eventually(t, time.Minute, "clones in every place they can get", func() error {
		if n := s.Class(t, "anonymous").InUse; n < free {
			return fmt.Errorf("%d clones hold a place, want %d", n, free)
		}
		return nil
	})
	took := pushAll(t, []*person{s.someone(t, ""), s.someone(t, ""), s.someone(t, ""), s.someone(t, "")}, 2, 2, patience)
	report(t, took, c)
	if got := s.Class(t, "anonymous").InUse; got != free {
		t.Errorf("%d clones hold a place after the pushes, want all %d: the test is about a full server", got, free)
	}
	if got := s.Class(t, "anonymous").Waiting + c.Refused(); got == 0 {
		t.Error("no clone waits and none was refused: there was no crowd")
	}
}

// TestGarbageFloodBesideNewPushers floods with made-up credentials from 1,000 addresses: half ask to push and are answered
// 401 after a password check, half clone a public repository, which accepts any credential. Beside it everybody who pushes is
// new to the gateway and passes. Password checks at the server stay within the places of class candidate.
func TestGarbageFloodBesideNewPushers(t *testing.T) {
	const check, atOnce = 50 * time.Millisecond, 3
	s := newCrowdSite(t, "admission", 256<<10, flood.BackendConfig{Workers: 128, AuthDelay: check})
	s.someone(t, "").push(t, patience) // everything has run once
	s.backend.ResetPeak()
	c := s.start(t, flood.Flood{Clients: 100, Sources: 1000, Pause: 100 * time.Millisecond, Driver: flood.Garbage("/pub.git", s.tip)})
	c.waitAnswers(t, 100)

	var all []*person
	for range 12 {
		all = append(all, s.someone(t, ""))
	}
	took := pushAll(t, all, 1, atOnce, patience)
	if n := s.Class(t, "push").Permits(); n < uint64(len(all)) {
		t.Errorf("class push gave %d permits to %d people: somebody was not proven", n, len(all))
	}
	harness.Eventually(t, 2*time.Minute, "a visit from every address", func() error {
		if n := c.Runs(); n < 1200 {
			return fmt.Errorf("%d visits", n)
		}
		return nil
	})
	c.stop()
	report(t, took, c)
	seconds := time.Since(c.started).Seconds()
	t.Logf("password checks: %.0f a second, at most %d at once", float64(s.backend.Checks())/seconds, s.backend.PeakChecks())
	const most = 8 + atOnce // the places of candidate, and pushes that are proven by now
	if s.backend.PeakChecks() > most {
		t.Errorf("%d password checks at once, want at most %d", s.backend.PeakChecks(), most)
	}
	if c.Count(http.StatusUnauthorized) < 200 || c.Served() < 200 {
		t.Errorf("the flood had %d answers 401 and %d clones, want 200 of each", c.Count(http.StatusUnauthorized), c.Served())
	}
	if n := s.Class(t, "candidate").Decisions["refused_queue_full"]; n != 0 {
		t.Errorf("the queue of candidate was full %d times", n)
	}
}

// TestFloodBehindThePushersAddress has everybody behind one address: a flood with made-up credentials, people the gateway
// knows and people it has never seen. All pushes pass; who is new waits behind the flood for one of the two places of
// candidate that an address can hold.
func TestFloodBehindThePushersAddress(t *testing.T) {
	s := newCrowdSite(t, "admission", 256<<10, flood.BackendConfig{Workers: 128, AuthDelay: 50 * time.Millisecond})
	known := []*person{s.someone(t, s.addr), s.someone(t, s.addr)}
	pushAll(t, known, 1, 1, patience)

	c := s.start(t, flood.Flood{Clients: 40, Source: flood.Only(ownAddress), Driver: flood.Garbage("/pub.git", s.tip)})
	knocks := s.start(t, flood.Flood{Clients: 20, Source: flood.Only(ownAddress), Pause: 50 * time.Millisecond, Driver: flood.Discover("/pub.git")})
	c.waitAnswers(t, 100)
	before := s.Class(t, "push").Permits()
	took := pushAll(t, known, 4, 2, patience)
	t.Log("people who had pushed before")
	report(t, took, c)
	// Eight pushes, each with its discovery: nothing of them waited among strangers.
	if n := s.Class(t, "push").Permits() - before; n < 16 {
		t.Errorf("class push gave them %d permits, want 16 at least", n)
	}
	took = pushAll(t, []*person{s.someone(t, s.addr), s.someone(t, s.addr), s.someone(t, s.addr), s.someone(t, s.addr)}, 1, 2, patience)
	t.Log("people who are new")
	report(t, took, c)
	if n := s.Class(t, "candidate").Waiting + s.Class(t, "anonymous").Waiting; n == 0 {
		t.Error("nobody waits: the address was not over its caps")
	}
	knocks.stop()
	c.stop()
}

// TestDiscoveryFloodIsAnsweredFromMemory has 1,000 addresses that only knock. A push knocks first too, and the server's
// challenge, which may take 240 ms, is repeated by the gateway: no push waits for the 16 places of class discovery.
func TestDiscoveryFloodIsAnsweredFromMemory(t *testing.T) {
	for _, delay := range []time.Duration{0, 240 * time.Millisecond} {
		t.Run("challenge after "+delay.String(), func(t *testing.T) {
			s := newCrowdSite(t, "admission", 256<<10, flood.BackendConfig{Workers: 128, ChallengeDelay: delay})
			s.someone(t, "").push(t, patience)
			c := s.start(t, flood.Flood{Clients: 1000, Pause: time.Second, Driver: flood.Discover("/pub.git")})
			c.waitAnswers(t, 1000)
			var all []*person
			for range 8 {
				all = append(all, s.someone(t, ""))
			}
			took := pushAll(t, all, 1, 2, patience)
			c.stop()
			report(t, took, c)
			class := s.Class(t, "discovery")
			if n := class.Refused() + class.Decisions["waited"]; n > 0 {
				t.Errorf("%d knocks waited or were refused; decisions %v", n, class.Decisions)
			}
			if got, all := c.Count(http.StatusUnauthorized), c.Answers(); got != all {
				t.Errorf("%d of %d knocks were answered 401", got, all)
			}
		})
	}
}

// TestKnocksElsewhereLeaveKnownNetworksTheirTurn has more networks than the queue of discovery is long that knock on
// repositories nobody has asked for, where there is no challenge to repeat. Strangers are refused; a network that has proven
// a credential goes first, also to a repository it has never asked for.
func TestKnocksElsewhereLeaveKnownNetworksTheirTurn(t *testing.T) {
	s := newCrowdSite(t, "admission", 64<<10, flood.BackendConfig{Workers: 128, ChallengeDelay: 240 * time.Millisecond})
	known := s.someone(t, "")
	known.push(t, patience)
	c := s.start(t, flood.Flood{Clients: 1200, Pause: 500 * time.Millisecond, Driver: flood.DiscoverMany("/nobody%d.git")})
	harness.Eventually(t, 2*time.Minute, "a full queue", func() error {
		if n := s.Class(t, "discovery").Decisions["refused_queue_full"]; n < 50 {
			return fmt.Errorf("%d refused, %d waiting", n, s.Class(t, "discovery").Waiting)
		}
		return nil
	})
	var took []time.Duration
	for i := range 3 {
		name := fmt.Sprintf("new%d.git", i)
		if _, err := flood.NewRepository(t.Context(), s.home, name, 1, 1024); err != nil {
			t.Fatal(err)
		}
		known.url = strings.Replace(known.url, known.repository, name, 1)
		known.repository = name
		took = append(took, known.push(t, patience))
	}
	c.stop()
	report(t, took, c)
}

// TestHitAndRunKeepsItsPlaces has clients that start a clone and hang up at once while the server goes on packing for 4
// seconds. A place is taken as long as the server works, so that the flood holds its own places and none of the pushes', and
// the server's own cap of 16 never refuses anybody.
func TestHitAndRunKeepsItsPlaces(t *testing.T) {
	s := newCrowdSite(t, "admission {\n total 16\n}", 256<<10, flood.BackendConfig{Workers: 16, QueueWait: 100 * time.Millisecond, Think: 4 * time.Second})
	c := s.start(t, flood.Flood{Clients: 32, Pause: 50 * time.Millisecond, Driver: flood.HitAndRun("/pub.git", s.tip, 200*time.Millisecond)})
	harness.Eventually(t, time.Minute, "two clones begun by everybody", func() error {
		if n := c.Runs(); n < 64 {
			return fmt.Errorf("%d clones", n)
		}
		return nil
	})
	took := pushAll(t, []*person{s.someone(t, ""), s.someone(t, ""), s.someone(t, "")}, 3, 2, patience)
	c.stop()
	report(t, took, c)
	most := s.Class(t, "anonymous").Max + 2*2 // two pushes at once, and the question of each
	if s.backend.Peak() > most {
		t.Errorf("the server worked on %d requests at once, want at most %d", s.backend.Peak(), most)
	}
	if s.backend.Shed() > 0 {
		t.Errorf("the server's own cap refused %d requests", s.backend.Shed())
	}
	if n := s.Class(t, "anonymous").Decisions["admitted"]; n < 8 {
		t.Errorf("%d clones were admitted, want at least the 8 that fit at once", n)
	}
}
