package identity

import (
	"context"
	"fmt"
	"testing"
	"time"
)

func at(now time.Time) func() time.Time { return func() time.Time { return now } }

func says(a Answer) func(context.Context) Answer { return func(context.Context) Answer { return a } }

// peek asks without teaching anything: an unknown answer stays unknown.
func (s *Store) peek(t Target, rest Digest, now time.Time) Answer {
	return s.Ask(context.Background(), t, rest, at(now), says(Unknown))
}

func repository(i int) Target {
	return Target{Site: "git.example.com", Repository: fmt.Sprint("guess/", i), Service: "git-upload-pack"}
}

var cookie = Digest{1}

func TestAskRemembers(t *testing.T) {
	for _, answer := range []Answer{Refused, Accepted} {
		s := NewStore()
		if got := s.Ask(context.Background(), push, Digest{}, at(start), says(answer)); got != answer {
			t.Fatalf("%v, want %v", got, answer)
		}
		never := func(context.Context) Answer { t.Error("asked again"); return Unknown }
		for _, d := range []time.Duration{0, AnswerKept - time.Nanosecond} {
			if got := s.Ask(context.Background(), push, Digest{}, at(after(d)), never); got != answer {
				t.Errorf("%v after %v, want %v", got, d, answer)
			}
		}
		if got := s.peek(push, Digest{}, after(AnswerKept)); got != Unknown {
			t.Errorf("%v after 10 minutes", got)
		}
		if v := s.Snapshot(); v.QuestionsSaved != 2 || v.Questions.Unknown != 1 || v.Questions.Refused+v.Questions.Accepted != 1 {
			t.Errorf("%+v", v)
		}
		checkSums(t, s)
	}
}

func TestAskUnknownIsNotKept(t *testing.T) {
	s := NewStore()
	for i := range 3 {
		asked := false
		s.Ask(context.Background(), push, Digest{}, at(start), func(context.Context) Answer { asked = true; return Answer(7 * i) })
		if !asked {
			t.Fatal("an unknown answer was kept")
		}
	}
	if v := s.Snapshot(); v.Questions.Unknown != 3 || v.Answers.Held != 0 {
		t.Errorf("%+v", v)
	}
}

// An accepted bare request spoils proof for this service, repository, site and
// rest, and for no other.
func TestAcceptedIsNarrow(t *testing.T) {
	s := NewStore()
	s.RecordBare(read, Digest{}, Accepted, start)
	for name, x := range map[string]struct {
		t    Target
		rest Digest
		want Answer
	}{
		"the same":           {read, Digest{}, Accepted},
		"another service":    {push, Digest{}, Unknown},
		"another rest":       {read, cookie, Unknown},
		"another repository": {Target{read.Site, "team/app2", read.Service}, Digest{}, Unknown},
		"another site":       {Target{"b.example.com", read.Repository, read.Service}, Digest{}, Unknown},
		"moved boundary":     {Target{read.Site + "t", "eam/app", read.Service}, Digest{}, Unknown},
	} {
		if got := s.peek(x.t, x.rest, start); got != x.want {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
}

func TestOpen(t *testing.T) {
	s := NewStore()
	s.RecordBare(read, cookie, Accepted, start)
	s.RecordBare(push, Digest{}, Refused, start)
	if s.Open(read, start) || s.Open(push, start) {
		t.Fatal("open by a request with a cookie, or by a refusal")
	}
	s.RecordBare(read, Digest{}, Accepted, start)
	if !s.Open(read, after(AnswerKept-1)) || s.Open(read, after(AnswerKept)) || s.Open(push, start) {
		t.Fatal("open for 10 minutes, this service only")
	}
	s.Ask(context.Background(), push, Digest{}, at(after(RefusalKept)), says(Accepted))
	if !s.Open(push, after(RefusalKept)) {
		t.Fatal("a question is a bare request too")
	}
}

func TestBareRefusalSavesQuestions(t *testing.T) {
	s := NewStore()
	s.RecordBare(push, Digest{}, Refused, start)
	s.RecordBare(read, Digest{}, Unknown, start)
	if got := s.peek(push, Digest{}, after(RefusalKept-1)); got != Refused {
		t.Errorf("%v within 60 s", got)
	}
	if got := s.peek(push, Digest{}, after(RefusalKept)); got != Unknown {
		t.Errorf("%v after 60 s", got)
	}
	if got := s.peek(read, Digest{}, start); got != Unknown {
		t.Errorf("%v from a request whose answer said nothing", got)
	}
}

// Accepted wins while it is kept, in whatever order the two are heard.
func TestAcceptedWins(t *testing.T) {
	s := NewStore()
	s.RecordBare(read, Digest{}, Refused, start)
	s.RecordBare(read, Digest{}, Accepted, start)
	s.RecordBare(read, Digest{}, Refused, after(time.Second))
	if got := s.peek(read, Digest{}, after(time.Second)); got != Accepted || !s.Open(read, after(time.Second)) {
		t.Errorf("%v", got)
	}
	if v := s.Snapshot(); v.Refusals.Held != 0 {
		t.Errorf("the refusal is still held: %+v", v)
	}
	// A question's Refused does not overrule what a client saw meanwhile.
	got := s.Ask(context.Background(), push, Digest{}, at(start), func(context.Context) Answer {
		s.RecordBare(push, Digest{}, Accepted, start)
		return Refused
	})
	if got != Accepted || s.peek(push, Digest{}, start) != Accepted {
		t.Errorf("%v, want accepted", got)
	}
	// A later Accepted replaces a Refused at once.
	s.Ask(context.Background(), push, cookie, at(start), says(Refused))
	s.RecordBare(push, cookie, Accepted, start)
	if got := s.peek(push, cookie, start); got != Accepted {
		t.Errorf("%v, want accepted", got)
	}
}

// Guessed names are refused; they must not push out a real answer. Neither
// must a client that varies its cookies.
func TestGuessingEvictsNothing(t *testing.T) {
	s := NewStore()
	s.RecordBare(read, Digest{}, Accepted, start)
	s.Ask(context.Background(), push, Digest{}, at(start), says(Refused))
	for i := range defaultBounds.refusals + defaultBounds.bareAnswers + 1 {
		s.RecordBare(repository(i), Digest{}, Refused, start)
	}
	for i := range defaultBounds.bareAnswers + 1 {
		s.RecordBare(repository(1), Digest{1, byte(i), byte(i >> 8)}, Accepted, start)
	}
	if s.peek(read, Digest{}, start) != Accepted || s.peek(push, Digest{}, start) != Refused {
		t.Error("a real answer is gone")
	}
	v := s.Snapshot()
	if v.Refusals.Held != 10_000 || v.Answers.Held != 2_002 || v.Answers.Max != 10_000 {
		t.Errorf("%+v", v)
	}
	checkSums(t, s)
}

// The oldest answer goes first.
func TestAnswersBound(t *testing.T) {
	s := small()
	for i := range 4 {
		s.RecordBare(repository(i), Digest{}, Accepted, after(time.Duration(i)*time.Second))
	}
	s.RecordBare(repository(1), Digest{}, Accepted, after(5*time.Second)) // the newest again
	s.RecordBare(repository(4), Digest{}, Accepted, after(6*time.Second))
	for i, want := range []bool{false, true, false, true, true} {
		if s.Open(repository(i), after(6*time.Second)) != want {
			t.Errorf("repository %d: open %v", i, !want)
		}
	}
	for i := range 4 {
		s.RecordBare(repository(i), cookie, Accepted, start)
		s.RecordBare(repository(10+i), Digest{}, Refused, start)
	}
	if v := s.Snapshot(); v.Answers.Held != 6 || v.Refusals.Held != 3 {
		t.Errorf("%+v", v)
	}
}
