package identity

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"
)

func challenge(lines ...string) Challenge {
	return Challenge{Status: 401, WWWAuthenticate: lines, ContentType: "text/plain", Body: []byte("Unauthorized\n"), At: start}
}

func TestChallengeReplay(t *testing.T) {
	s := NewStore()
	c := challenge(`Basic realm="git"`)
	s.SaveChallenge(push, c)
	got, ok := s.Challenge(push, after(ChallengeKept-1))
	if !ok || !reflect.DeepEqual(got, c) {
		t.Fatalf("%+v, %v", got, ok)
	}
	if _, ok := s.Challenge(read, start); ok {
		t.Error("the other service has it as well")
	}
	if _, ok := s.Challenge(push, after(ChallengeKept)); ok {
		t.Error("kept for 60 s")
	}
	c.WWWAuthenticate[0], c.Body[0] = "changed", 'X'
	if got, _ = s.Challenge(push, start); got.WWWAuthenticate[0] != `Basic realm="git"` || got.Body[0] != 'U' {
		t.Error("not a copy")
	}
	s.CountReplay()
	if v := s.Snapshot(); v.ChallengesReplayed != 1 || v.Challenges.Held != 1 {
		t.Errorf("%+v", v)
	}
	s.RecordBare(push, Digest{}, Accepted, start)
	if _, ok := s.Challenge(push, start); ok {
		t.Error("replayed although the repository has opened")
	}
	checkSums(t, s)
}

func TestChallengeRefused(t *testing.T) {
	change := func(f func(*Challenge)) Challenge { c := challenge("Basic"); f(&c); return c }
	for name, c := range map[string]Challenge{
		"403":                 change(func(c *Challenge) { c.Status = 403 }),
		"200":                 change(func(c *Challenge) { c.Status = 200 }),
		"407":                 change(func(c *Challenge) { c.Status = 407 }),
		"no challenge":        challenge(),
		"no time":             change(func(c *Challenge) { c.At = time.Time{} }),
		"too many lines":      challenge(strings.Split(strings.Repeat("Basic,", 9), ",")...),
		"too long":            challenge("Basic realm=" + strings.Repeat("x", maxChallengeHead)),
		"handshake":           challenge("Basic", "NTLM TlRMTVNTUAACAAAA"),
		"negotiate handshake": challenge("Negotiate oYG2MIGz"),
	} {
		s := NewStore()
		s.SaveChallenge(push, c)
		if _, ok := s.Challenge(push, start); ok || s.Snapshot().Challenges.Held != 0 {
			t.Errorf("%s: kept", name)
		}
	}
	s := NewStore()
	s.SaveChallenge(push, challenge("Negotiate", "Basic"))
	if _, ok := s.Challenge(push, start); !ok {
		t.Error("an offer of Negotiate is no handshake")
	}
}

func TestChallengeBody(t *testing.T) {
	for size, want := range map[int]int{maxChallengeBody: maxChallengeBody, maxChallengeBody + 1: 0} {
		s := NewStore()
		c := challenge("Basic")
		c.Body = bytes.Repeat([]byte("x"), size)
		s.SaveChallenge(push, c)
		if got, ok := s.Challenge(push, start); !ok || len(got.Body) != want || (got.ContentType == "") != (want == 0) {
			t.Errorf("a body of %d bytes: %d kept, %v", size, len(got.Body), ok)
		}
	}
}

func TestChallengeBounds(t *testing.T) {
	s := small() // 3 challenges and 8 KiB in each table
	for i := range 5 {
		s.SaveChallenge(repository(i), challenge("Basic"))
	}
	for i := range 5 {
		if _, ok := s.Challenge(repository(i), start); ok != (i >= 2) {
			t.Errorf("repository %d: %v", i, ok)
		}
	}
	c := challenge("Basic")
	c.Body = make([]byte, maxChallengeBody)
	s.SaveChallenge(repository(5), c)
	s.SaveChallenge(repository(6), c)
	if _, ok := s.Challenge(repository(5), start); ok {
		t.Error("more bytes than the bound")
	}
	if _, ok := s.Challenge(repository(6), start); !ok {
		t.Error("the newest is gone")
	}
	checkSums(t, s)
	if v := s.Snapshot(); v.ChallengeBytes.Held == 0 {
		t.Errorf("%+v", v)
	}
}

// Guessed names are answered 401 too. They must not push out a repository
// that somebody really uses.
func TestGuessedChallengesEvictNothing(t *testing.T) {
	s := NewStore()
	s.Prove(s.parse(t, "Bearer abc"), groupA, push, start)
	s.SaveChallenge(push, challenge("Basic"))
	for i := range 2 * defaultBounds.challenges {
		s.SaveChallenge(repository(i), challenge("Basic"))
	}
	if _, ok := s.Challenge(push, start); !ok {
		t.Error("the real repository's challenge is gone")
	}
	checkSums(t, s)
}

// A target changes tables when it turns out to be real, and is found in one.
func TestChallengeMovesTables(t *testing.T) {
	s := NewStore()
	s.SaveChallenge(push, challenge("Basic realm=old"))
	s.Prove(s.parse(t, "Bearer abc"), groupA, push, start)
	s.SaveChallenge(push, challenge("Basic realm=new"))
	if c, _ := s.Challenge(push, start); c.WWWAuthenticate[0] != "Basic realm=new" {
		t.Errorf("%q", c.WWWAuthenticate)
	}
	if v := s.Snapshot(); v.Challenges.Held != 1 {
		t.Errorf("%+v", v)
	}
	checkSums(t, s)
}
