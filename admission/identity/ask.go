package identity

import (
	"context"
	"time"
)

// Ask returns the answer of t to rest. If it is not known, ask is called to
// send the question; callers that come meanwhile wait for the same answer, or
// until their ctx ends (then Unknown). An Unknown is shared by those who
// waited and is not kept. Only call Ask for a credential that t just accepted:
// that is what keeps guessed names out of the answers.
//
// ask runs on the caller's goroutine. Its context has ctx's values but not
// its cancellation, so that a client who leaves does not spoil the answer for
// others, and ends after 5 s; ask must return then. now is read before and
// after. If ask panics, those who waited get Unknown and the panic goes on.
func (s *Store) Ask(ctx context.Context, t Target, rest Digest, now func() time.Time, ask func(context.Context) Answer) (answer Answer) {
	k, bare := s.withRest(t, rest), rest.Zero()
	f, lead, known := s.answers.join(k, bare, s.since(now()))
	switch {
	case f == nil:
		return known
	case !lead:
		return follow(ctx, f)
	}
	heard := Unknown
	defer func() { answer = s.answers.finish(k, bare, f, heard, s.since(now())) }()
	question, cancel := context.WithTimeout(context.WithoutCancel(ctx), QuestionLimit)
	defer cancel()
	heard = ask(question)
	return heard
}

// flight is a question being asked. answer is set before done is closed.
type flight struct {
	done      chan struct{}
	answer    Answer
	followers int
}

// join returns the known answer, or the flight to lead or to follow. Without
// a flight the answer is final: known, or Unknown because a bound is reached.
func (a *answers) join(k Digest, bare bool, now int64) (f *flight, lead bool, known Answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known = a.known(k, bare, now); known != Unknown {
		a.saved++
		return nil, false, known
	}
	f = a.flights[k]
	switch {
	case f == nil && len(a.flights) < a.maxFlights:
		f = &flight{done: make(chan struct{})}
		a.flights[k] = f
		return f, true, Unknown
	case f != nil && f.followers < a.maxFollowers:
		f.followers++
		a.followed++
		return f, false, Unknown
	}
	a.overflow++
	return nil, false, Unknown
}

// follow waits for the leader. When the answer and the end of ctx race, the
// answer wins.
func follow(ctx context.Context, f *flight) Answer {
	select {
	case <-f.done:
		return f.answer
	case <-ctx.Done():
	}
	select {
	case <-f.done:
		return f.answer
	default:
		return Unknown
	}
}

// finish ends a flight and returns its answer. What a client's own bare
// request taught meanwhile counts where it is safer or where the question
// taught nothing.
func (a *answers) finish(k Digest, bare bool, f *flight, heard Answer, now int64) Answer {
	if heard > Accepted {
		heard = Unknown
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked[heard]++
	known := a.known(k, bare, now)
	if heard == Accepted || heard == Refused && known != Accepted {
		a.keep(k, bare, heard, now)
		known = heard
	}
	f.answer = known
	delete(a.flights, k)
	close(f.done)
	return known
}
