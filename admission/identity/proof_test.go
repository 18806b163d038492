package identity

import (
	"fmt"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// The pair is what is proven: a secret is worth nothing from another group.
func TestProofBelongsToGroup(t *testing.T) {
	s := NewStore()
	c := s.parse(t, basic("alice", "secret"))
	if s.Proven(c, groupA, start) || s.ProvenGroup(groupA, start) {
		t.Fatal("proven before anything happened")
	}
	s.Prove(c, groupA, push, start)
	if !s.Proven(c, groupA, start) || !s.ProvenGroup(groupA, start) {
		t.Fatal("not proven")
	}
	if !s.Proven(s.parse(t, basic("mallory", "secret")), groupA, start) || !s.Proven(s.parse(t, "Bearer secret"), groupA, start) {
		t.Fatal("another dress of the secret is another identity")
	}
	if s.Proven(c, groupB, start) || s.ProvenGroup(groupB, start) {
		t.Fatal("proven from a group that never proved it")
	}
	if s.Proven(s.parse(t, basic("alice", "guess")), groupA, start) {
		t.Fatal("another secret is proven")
	}
}

// Guessing from elsewhere learns nothing: whatever a stranger does with the
// real secret has the same answers, and leaves the same counters, as with a
// made-up one; and it changes nothing for the owner.
func TestProofIsNoOracle(t *testing.T) {
	outcome := func(line string) string {
		s := NewStore()
		owner := s.parse(t, basic("alice", "secret"))
		s.Prove(owner, groupA, push, start)
		before := s.Snapshot()
		c := s.parse(t, line)
		text := fmt.Sprint(s.Proven(c, groupB, start), s.ProvenGroup(groupB, start))
		s.Opened(c, groupB, read, start)
		s.Denied(c, groupB, push, start)
		s.Denied(c, groupB, read, start)
		text += fmt.Sprint(s.Proven(c, groupB, start), s.ProvenGroup(groupB, start))
		if after := s.Snapshot(); after != before {
			t.Errorf("%q left a trace: %+v, before %+v", line, after, before)
		}
		if !s.Proven(owner, groupA, after(time.Hour)) {
			t.Errorf("%q from elsewhere ended the owner's proof", line)
		}
		// read was opened by the stranger only: a 401 there says nothing.
		s.Denied(owner, groupA, read, after(time.Hour))
		if !s.Proven(owner, groupA, after(time.Hour)) {
			t.Errorf("%q taught the owner's proof a target", line)
		}
		return text
	}
	if real, guess := outcome(basic("alice", "secret")), outcome(basic("alice", "guess")); real != guess {
		t.Errorf("the real secret answers %s, a guess %s", real, guess)
	}
}

// A stranger's lookups are not uses: they do not keep a proof alive or young.
func TestStrangerDoesNotKeepAlive(t *testing.T) {
	s := small()
	c := s.parse(t, "Bearer one")
	s.Prove(c, groupA, push, start)
	s.Proven(c, groupB, after(23*time.Hour))
	if s.Proven(c, groupA, after(24*time.Hour)) {
		t.Fatal("kept alive from another group")
	}
}

func TestProofEnds(t *testing.T) {
	s := NewStore()
	c := s.parse(t, "token abc")
	s.Prove(c, groupA, push, start)
	now := start
	for range 3 {
		now = now.Add(ProofKept - time.Nanosecond)
		if !s.Proven(c, groupA, now) {
			t.Fatal("ended within 24 h of its last use")
		}
	}
	now = now.Add(ProofKept)
	if s.ProvenGroup(groupA, now) || s.Proven(c, groupA, now) {
		t.Fatal("alive 24 h after its last use")
	}
	if v := s.Snapshot(); v.Secrets.Held != 0 || v.Proofs.Held != 0 || v.Groups != 0 || v.ProofsExpired != 1 {
		t.Fatalf("not forgotten: %+v", v)
	}
	checkSums(t, s)
}

// A secret that is only ever used, never accepted, loses its place at last.
func TestProofUnconfirmedEnds(t *testing.T) {
	s := NewStore()
	used, accepted := s.parse(t, "token used"), s.parse(t, "token accepted")
	s.Prove(used, groupA, push, start)
	s.Prove(accepted, groupA, push, start)
	for now := start; now.Before(after(ProofUnconfirmed)); now = now.Add(time.Hour) {
		if !s.Proven(used, groupA, now) || !s.Proven(accepted, groupA, now) {
			t.Fatal("ended early")
		}
		s.Opened(accepted, groupA, push, now)
	}
	now := after(ProofUnconfirmed)
	if s.Proven(used, groupA, now) || !s.Proven(accepted, groupA, now) {
		t.Fatal("the unconfirmed one must have ended, the other not")
	}
	if !s.ProvenGroup(groupA, now) {
		t.Fatal("the group still holds a proof")
	}
}

func TestDenied(t *testing.T) {
	elsewhere := Target{Site: "git.example.com", Repository: "other/app", Service: "git-upload-pack"}
	for _, test := range []struct {
		name   string
		group  admission.Key
		target Target
		ends   bool
	}{
		{"on the target that proved it", groupA, push, true},
		{"on a target it opened later", groupA, read, true},
		{"from the other group that proved it", groupB, push, true},
		{"on a target it never opened", groupA, elsewhere, false},
		{"from a stranger", groupC, push, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := NewStore()
			c, bystander := s.parse(t, "token abc"), s.parse(t, "token def")
			s.Prove(c, groupA, push, start)
			s.Opened(c, groupA, read, start)
			s.Prove(c, groupB, push, start)
			s.Prove(bystander, groupA, push, start)
			s.Denied(c, test.group, test.target, start)
			if s.Proven(c, groupA, start) == test.ends || s.Proven(c, groupB, start) == test.ends {
				t.Fatalf("ended: want %v, in every group", test.ends)
			}
			if !s.Proven(bystander, groupA, start) || !s.ProvenGroup(groupA, start) {
				t.Fatal("another secret's proof ended")
			}
			if s.ProvenGroup(groupB, start) == test.ends {
				t.Fatal("the group's standing does not follow its last proof")
			}
			checkSums(t, s)
		})
	}
}

// Unusable credentials and none are never proven, whatever is called.
func TestProofNeedsUsable(t *testing.T) {
	s := NewStore()
	for _, c := range []Credential{{}, {Form: Unusable}, {Form: Basic}, s.Parse(header("Negotiate abc")), s.Parse(header("Basic dTpw, x"))} {
		s.Prove(c, groupA, push, start)
		s.Opened(c, groupA, push, start)
		s.Denied(c, groupA, push, start)
		if s.Proven(c, groupA, start) || s.ProvenGroup(groupA, start) {
			t.Errorf("%v is proven", c.Form)
		}
	}
}

// With 8 groups the one that used the secret least recently loses it.
func TestProofGroupsBound(t *testing.T) {
	s := NewStore()
	c := s.parse(t, "token abc")
	for g := range 8 {
		s.Prove(c, admission.Key(100+g), push, after(time.Duration(g)*time.Second))
	}
	s.Proven(c, 100, after(time.Minute))
	s.Prove(c, 200, push, after(2*time.Minute))
	for g := range 8 {
		if want := g != 1; s.ProvenGroup(admission.Key(100+g), after(3*time.Minute)) != want {
			t.Errorf("group %d: proven %v", g, !want)
		}
	}
	if !s.Proven(c, 200, after(3*time.Minute)) || s.Proven(c, 101, after(3*time.Minute)) {
		t.Error("the ninth group did not take the place of the oldest")
	}
	if v := s.Snapshot(); v.Secrets.Held != 1 || v.Proofs.Held != 8 || v.Groups != 8 {
		t.Errorf("%+v", v)
	}
}

// At the bound the secret used least recently goes.
func TestProofSecretsBound(t *testing.T) {
	s := small()
	c := make([]Credential, 4)
	for i := range c {
		c[i] = s.parse(t, fmt.Sprint("token ", i))
	}
	for i := range 3 {
		s.Prove(c[i], groupA, push, after(time.Duration(i)*time.Second))
	}
	s.Proven(c[0], groupA, after(time.Minute))
	s.Prove(c[3], groupB, push, after(time.Minute))
	for i := range c {
		if want := i != 1; s.Proven(c[i], groupA+admission.Key(i/3), after(time.Minute)) != want {
			t.Errorf("secret %d: proven %v", i, !want)
		}
	}
	if v := s.Snapshot(); v.ProofsDisplaced != 1 || v.Secrets.Held != 3 {
		t.Errorf("%+v", v)
	}
	checkSums(t, s)
}

// The last 16 targets are remembered.
func TestProofTargetsBound(t *testing.T) {
	target := func(i int) Target { return Target{Site: "s", Repository: fmt.Sprint(i), Service: "lfs"} }
	for opened, ends := range map[int]bool{targetsPerSecret: true, targetsPerSecret + 1: false} {
		s := NewStore()
		c := s.parse(t, "token abc")
		s.Prove(c, groupA, target(0), start)
		for i := 1; i < opened; i++ {
			s.Opened(c, groupA, target(i), start)
			s.Opened(c, groupA, target(i), start)
		}
		s.Denied(c, groupA, target(0), start)
		if s.Proven(c, groupA, start) == ends {
			t.Errorf("with %d targets the first one is remembered: %v, want %v", opened, !ends, ends)
		}
	}
}

// Two accounts with one password are two where the upstream says so; a token
// with many names is one.
func TestUserNamesOfASecret(t *testing.T) {
	s := NewStore()
	ask := func(user string) Credential { return s.parse(t, basic(user, "secret")) }
	if s.NameOpen(ask("alice")) {
		t.Error("a name is open before anything was accepted")
	}
	s.Prove(ask("alice"), groupA, push, start)
	if s.NameOpen(ask("alice")) || !s.NameOpen(ask("bob")) || s.NameOpen(s.parse(t, "Bearer secret")) || s.NameOpen(s.parse(t, basic("bob", "guess"))) {
		t.Error("only another name of the proven secret is open")
	}
	s.Opened(ask("bob"), groupA, push, start)
	if !s.User(ask("bob")).Zero() {
		t.Error("a name counts apart although the upstream may take any")
	}
	s.Named(ask("bob"))
	if s.User(ask("bob")).Zero() || s.NameOpen(ask("bob")) || !s.User(ask("alice")).Zero() || !s.User(ask("mallory")).Zero() {
		t.Error("want bob apart, and alice with all other names")
	}
	for i := range 50 {
		s.Named(ask(fmt.Sprintf("name%d", i)))
	}
	apart := 0
	for i := range 50 {
		if !s.User(ask(fmt.Sprintf("name%d", i))).Zero() {
			apart++
		}
	}
	if apart != usersPerSecret-2 {
		t.Errorf("%d more names count apart, want %d", apart, usersPerSecret-2)
	}
}
