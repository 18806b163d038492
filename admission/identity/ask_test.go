package identity

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Forty callers, one question, one answer for all.
func TestAskOnce(t *testing.T) {
	for _, answer := range []Answer{Unknown, Refused, Accepted} {
		synctest.Test(t, func(t *testing.T) {
			s := NewStore()
			var asked atomic.Int32
			got := make(chan Answer, 40)
			for range cap(got) {
				go func() {
					got <- s.Ask(t.Context(), push, Digest{}, time.Now, func(context.Context) Answer {
						asked.Add(1)
						time.Sleep(time.Second)
						return answer
					})
				}()
			}
			for range cap(got) {
				if a := <-got; a != answer {
					t.Errorf("%v, want %v", a, answer)
				}
			}
			if n := asked.Load(); n != 1 {
				t.Errorf("asked %d times", n)
			}
			if v := s.Snapshot(); v.QuestionsShared != 39 || v.Asking.Held != 0 {
				t.Errorf("%+v", v)
			}
		})
	}
}

// Different targets and rests do not wait for each other.
func TestAskInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		begin := time.Now()
		done := make(chan Answer)
		slow := func(context.Context) Answer { time.Sleep(time.Second); return Refused }
		go func() { done <- s.Ask(t.Context(), push, Digest{}, time.Now, slow) }()
		go func() { done <- s.Ask(t.Context(), push, cookie, time.Now, slow) }()
		go func() { done <- s.Ask(t.Context(), read, Digest{}, time.Now, slow) }()
		for range 3 {
			<-done
		}
		if d := time.Since(begin); d != time.Second {
			t.Errorf("took %v", d)
		}
	})
}

// A follower leaves when its own client does; a leader's client that leaves
// does not spoil the question for the others.
func TestAskWhenClientsLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		type key struct{}
		leader, leaveLeader := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
		follower, leaveFollower := context.WithCancel(t.Context())
		first, second, third := make(chan Answer, 1), make(chan Answer, 1), make(chan Answer, 1)
		go func() {
			first <- s.Ask(leader, push, Digest{}, time.Now, func(ctx context.Context) Answer {
				if ctx.Value(key{}) != "kept" {
					t.Error("the question lost the request's values")
				}
				select {
				case <-ctx.Done():
					return Unknown
				case <-time.After(2 * time.Second):
					return Refused
				}
			})
		}()
		synctest.Wait()
		go func() { second <- s.Ask(follower, push, Digest{}, time.Now, says(Accepted)) }()
		go func() { third <- s.Ask(t.Context(), push, Digest{}, time.Now, says(Accepted)) }()
		synctest.Wait()
		leaveFollower()
		synctest.Wait()
		select {
		case a := <-second:
			if a != Unknown {
				t.Errorf("the follower who left got %v", a)
			}
		default:
			t.Error("the follower who left still waits")
		}
		leaveLeader()
		if a, b := <-first, <-third; a != Refused || b != Refused {
			t.Errorf("leader %v, follower %v, want refused", a, b)
		}
	})
}

func TestAskHasFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		begin := time.Now()
		s.Ask(t.Context(), push, Digest{}, time.Now, func(ctx context.Context) Answer {
			<-ctx.Done()
			return Unknown
		})
		if d := time.Since(begin); d != QuestionLimit {
			t.Errorf("took %v", d)
		}
	})
}

func TestAskPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		follower := make(chan Answer, 1)
		func() {
			defer func() {
				if recover() != "boom" {
					t.Error("the panic was swallowed")
				}
			}()
			s.Ask(t.Context(), push, Digest{}, time.Now, func(context.Context) Answer {
				go func() { follower <- s.Ask(t.Context(), push, Digest{}, time.Now, says(Refused)) }()
				synctest.Wait()
				panic("boom")
			})
		}()
		if a := <-follower; a != Unknown {
			t.Errorf("the follower got %v", a)
		}
		if a := s.Ask(t.Context(), push, Digest{}, time.Now, says(Refused)); a != Refused {
			t.Errorf("the next question got %v", a)
		}
		checkSums(t, s)
	})
}

func TestAskBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := small() // 2 questions at once, 2 followers each
		release := make(chan struct{})
		wait := func(context.Context) Answer { <-release; return Refused }
		got := make(chan Answer, 4)
		for _, target := range []Target{push, read} {
			go func() { got <- s.Ask(t.Context(), target, Digest{}, time.Now, wait) }()
		}
		synctest.Wait()
		for range 2 {
			go func() { got <- s.Ask(t.Context(), push, Digest{}, time.Now, wait) }()
		}
		synctest.Wait()
		never := func(context.Context) Answer { t.Error("asked beyond the bound"); return Accepted }
		if a := s.Ask(t.Context(), push, Digest{}, time.Now, never); a != Unknown {
			t.Errorf("a third follower got %v", a)
		}
		if a := s.Ask(t.Context(), push, cookie, time.Now, never); a != Unknown {
			t.Errorf("a third question got %v", a)
		}
		close(release)
		for range 4 {
			if a := <-got; a != Refused {
				t.Errorf("within the bound: %v", a)
			}
		}
		if v := s.Snapshot(); v.QuestionsOverflow != 2 || v.QuestionsShared != 2 || v.Questions.Refused != 2 {
			t.Errorf("%+v", v)
		}
	})
}
