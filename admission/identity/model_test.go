package identity

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"pgregory.net/rapid"
)

// proofModel says what proofs should be, with slices and full scans.
type proofModel struct {
	bound   int
	secrets []*modelSecret // least recently used first
}

type modelSecret struct {
	line    string
	used    time.Time
	groups  []modelPair
	targets []int // oldest first
}

type modelPair struct {
	group           admission.Key
	used, confirmed time.Time
}

func (m *proofModel) expire(now time.Time) {
	for _, x := range m.secrets {
		x.groups = slices.DeleteFunc(x.groups, func(p modelPair) bool {
			return now.Sub(p.used) >= 24*time.Hour || now.Sub(p.confirmed) >= 7*24*time.Hour
		})
	}
	m.secrets = slices.DeleteFunc(m.secrets, func(x *modelSecret) bool { return len(x.groups) == 0 })
}

func (m *proofModel) find(line string, group admission.Key) (*modelSecret, *modelPair) {
	for _, x := range m.secrets {
		if x.line != line {
			continue
		}
		for i := range x.groups {
			if x.groups[i].group == group {
				return x, &x.groups[i]
			}
		}
		return x, nil
	}
	return nil, nil
}

func (m *proofModel) touch(x *modelSecret, p *modelPair, now time.Time) {
	p.used, x.used = now, now
	m.secrets = append(slices.DeleteFunc(m.secrets, func(y *modelSecret) bool { return y == x }), x)
}

func (m *proofModel) proven(line string, group admission.Key, now time.Time) bool {
	x, p := m.find(line, group)
	if p == nil {
		return false
	}
	m.touch(x, p, now)
	return true
}

func (m *proofModel) accept(line string, group admission.Key, target int, now time.Time, proves bool) {
	x, p := m.find(line, group)
	if p == nil {
		if !proves {
			return
		}
		if x == nil {
			if len(m.secrets) == m.bound {
				m.secrets = m.secrets[1:]
			}
			x = &modelSecret{line: line}
			m.secrets = append(m.secrets, x)
		}
		if len(x.groups) == 8 {
			oldest := 0
			for i := range x.groups {
				if x.groups[i].used.Before(x.groups[oldest].used) {
					oldest = i
				}
			}
			x.groups = slices.Delete(x.groups, oldest, oldest+1)
		}
		x.groups = append(x.groups, modelPair{group: group})
		p = &x.groups[len(x.groups)-1]
	}
	p.confirmed = now
	m.touch(x, p, now)
	if !slices.Contains(x.targets, target) {
		x.targets = append(x.targets, target)
		x.targets = x.targets[max(0, len(x.targets)-16):]
	}
}

func (m *proofModel) deny(line string, group admission.Key, target int) {
	if x, p := m.find(line, group); p != nil && slices.Contains(x.targets, target) {
		m.secrets = slices.DeleteFunc(m.secrets, func(y *modelSecret) bool { return y == x })
	}
}

func (m *proofModel) holds(group admission.Key) bool {
	for _, x := range m.secrets {
		for _, p := range x.groups {
			if p.group == group {
				return true
			}
		}
	}
	return false
}

// checkProofs drives store and model with the same calls. Each step takes time,
// so that "least recently used" is never a tie.
func checkProofs(t *rapid.T, bound int, secrets, groups, targets int, longest, total time.Duration) {
	b := defaultBounds
	b.secrets = bound
	s, m, now := newStore(b), &proofModel{bound: bound}, start
	draw := func(t *rapid.T) (string, admission.Key, int) {
		return fmt.Sprint("token ", rapid.IntRange(1, secrets).Draw(t, "secret")),
			admission.Key(rapid.IntRange(1, groups).Draw(t, "group")), rapid.IntRange(1, targets).Draw(t, "target")
	}
	step := func(f func(line string, group admission.Key, target int)) func(*rapid.T) {
		return func(t *rapid.T) {
			line, group, target := draw(t)
			f(line, group, target)
		}
	}
	credential := func(line string) Credential { return s.parse(t, line) }
	t.Repeat(map[string]func(*rapid.T){
		"prove": step(func(line string, group admission.Key, target int) {
			s.Prove(credential(line), group, repository(target), now)
			m.accept(line, group, target, now, true)
		}),
		"open": step(func(line string, group admission.Key, target int) {
			s.Opened(credential(line), group, repository(target), now)
			m.accept(line, group, target, now, false)
		}),
		"deny": step(func(line string, group admission.Key, target int) {
			s.Denied(credential(line), group, repository(target), now)
			m.deny(line, group, target)
		}),
		"use": func(t *rapid.T) {
			line, group, _ := draw(t)
			if got, want := s.Proven(credential(line), group, now), m.proven(line, group, now); got != want {
				t.Fatalf("%s from %d: proven %v, want %v", line, group, got, want)
			}
		},
		"advance": func(t *rapid.T) {
			if d := time.Duration(rapid.Int64Range(1, int64(longest)).Draw(t, "by")); now.Add(d).Before(start.Add(total)) {
				now = now.Add(d)
			}
		},
		"": func(t *rapid.T) {
			now = now.Add(time.Millisecond)
			m.expire(now)
			group := admission.Key(rapid.IntRange(1, groups).Draw(t, "group asked"))
			if got, want := s.ProvenGroup(group, now), m.holds(group); got != want {
				t.Fatalf("group %d: holds a proof %v, want %v", group, got, want)
			}
			checkSums(t, s)
		},
	})
}

func TestProofModelBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkProofs(t, 3, 5, 3, 4, 12*time.Hour, 6*24*time.Hour) })
}

func TestProofModelGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkProofs(t, 3, 1, 12, 20, time.Hour, 6*24*time.Hour) })
}

func TestProofModelTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkProofs(t, 100, 3, 2, 3, 23*time.Hour, 1000*24*time.Hour) })
}

// answerModel says what answers should be.
type answerModel struct {
	answers  [2][]modelAnswer // bare, with rest; oldest first
	refusals []modelAnswer
}

type modelAnswer struct {
	target int
	rest   bool
	answer Answer
	at     time.Time
}

func (x modelAnswer) same(target int, rest bool) bool { return x.target == target && x.rest == rest }

func (m *answerModel) known(target int, rest bool, now time.Time) Answer {
	for _, x := range m.answers[index(rest)] {
		if x.same(target, rest) && now.Sub(x.at) < 10*time.Minute {
			return x.answer
		}
	}
	for _, x := range m.refusals {
		if x.same(target, rest) && now.Sub(x.at) < time.Minute {
			return Refused
		}
	}
	return Unknown
}

func index(rest bool) int {
	if rest {
		return 1
	}
	return 0
}

func (m *answerModel) put(list *[]modelAnswer, x modelAnswer) {
	*list = slices.DeleteFunc(*list, func(y modelAnswer) bool { return y.same(x.target, x.rest) })
	*list = append(*list, x)
	*list = (*list)[max(0, len(*list)-3):]
}

func (m *answerModel) heard(target int, rest bool, answer Answer, now time.Time) {
	m.put(&m.answers[index(rest)], modelAnswer{target, rest, answer, now})
	m.refusals = slices.DeleteFunc(m.refusals, func(y modelAnswer) bool { return y.same(target, rest) })
}

func TestAnswerModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, m, now := small(), &answerModel{}, start
		draw := func(t *rapid.T) (int, bool, Digest) {
			target, rest := rapid.IntRange(1, 5).Draw(t, "target"), rapid.Bool().Draw(t, "rest")
			if rest {
				return target, rest, cookie
			}
			return target, rest, Digest{}
		}
		t.Repeat(map[string]func(*rapid.T){
			"bare": func(t *rapid.T) {
				target, rest, digest := draw(t)
				answer := Answer(rapid.IntRange(0, 2).Draw(t, "answer"))
				s.RecordBare(repository(target), digest, answer, now)
				switch {
				case answer == Accepted:
					m.heard(target, rest, Accepted, now)
				case answer == Refused && m.known(target, rest, now) != Accepted:
					m.put(&m.refusals, modelAnswer{target, rest, Refused, now})
				}
			},
			"ask": func(t *rapid.T) {
				target, rest, digest := draw(t)
				answer := Answer(rapid.IntRange(0, 2).Draw(t, "answer"))
				want, asked := m.known(target, rest, now), false
				got := s.Ask(context.Background(), repository(target), digest, at(now), func(context.Context) Answer {
					asked = true
					return answer
				})
				if asked != (want == Unknown) {
					t.Fatalf("target %d: asked %v, known %v", target, asked, want)
				}
				if asked {
					if want = answer; answer != Unknown {
						m.heard(target, rest, answer, now)
					}
				}
				if got != want {
					t.Fatalf("target %d: %v, want %v", target, got, want)
				}
			},
			"open": func(t *rapid.T) {
				target := rapid.IntRange(1, 5).Draw(t, "target")
				if got, want := s.Open(repository(target), now), m.known(target, false, now) == Accepted; got != want {
					t.Fatalf("target %d: open %v, want %v", target, got, want)
				}
			},
			"advance": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds")) * time.Second)
			},
			"": func(t *rapid.T) {
				now = now.Add(time.Millisecond)
				checkSums(t, s)
			},
		})
	})
}
