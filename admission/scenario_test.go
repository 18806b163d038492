package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-admission/gateway/internal/scenario"
)

// TestScenarios plays testdata/scenarios/*.txt. Their steps:
//
//	config JSON                  makes the controller; apply JSON changes it
//	arrive NAME CLASS [k=v …]    k: addr, cred, repo, group, bytes; or cont, proven
//	end NAME [OUTCOME]           abandon NAME, move NAME CLASS, cancel NAME
//	sleep DURATION               shutdown
//	queue CLASS                  who waits, in the order of their turns
func TestScenarios(t *testing.T) {
	scenario.Test(t, func(t *testing.T) scenario.Player {
		s := &stage{t: t, actors: make(map[string]*actor), waiters: make(map[int64]string), reports: make(chan string, 10000)}
		return scenario.Player{Step: s.step, End: s.finish}
	})
}

type stage struct {
	t       *testing.T
	c       *Controller
	actors  map[string]*actor
	waiters map[int64]string // by order of arrival
	reports chan string
}

type actor struct {
	permit Permit
	cancel context.CancelFunc
}

func (s *stage) finish() {
	for _, a := range s.actors {
		a.cancel()
	}
	synctest.Wait()
	for _, a := range s.actors {
		a.permit.End(OutcomeCompleted)
	}
	mustBeIdle(s.t, s.c)
}

// step runs one command and returns what it prints.
func (s *stage) step(line string) string {
	verb, rest, _ := strings.Cut(line, " ")
	f := strings.Fields(rest)
	var out string
	switch verb {
	case "config":
		s.c = NewControllerWith(s.policy(rest), Options{Spread: func() float64 { return 0 }})
	case "apply":
		s.c.Apply(s.policy(rest))
	case "arrive":
		s.arrive(f)
	case "end":
		o := OutcomeCompleted
		if len(f) > 1 {
			o = Outcome(slices.Index(outcomeNames[:], f[1]))
		}
		s.actor(f[0]).permit.End(o)
	case "abandon":
		out = fmt.Sprintln(s.actor(f[0]).permit.Abandon())
	case "move":
		to, _ := ParseClass(f[1])
		out = fmt.Sprintln(s.actor(f[0]).permit.Move(to))
	case "cancel":
		s.actor(f[0]).cancel()
	case "sleep":
		d, err := time.ParseDuration(rest)
		if err != nil {
			s.t.Fatal(err)
		}
		time.Sleep(d)
	case "shutdown":
		s.c.Shutdown()
	case "queue":
		class, _ := ParseClass(rest)
		out = s.queue(class)
	default:
		s.t.Fatalf("unknown step %q", line)
	}
	synctest.Wait()
	return out + s.collect()
}

func (s *stage) policy(text string) *Policy {
	var cfg Config
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		s.t.Fatal(err)
	}
	return compile(s.t, cfg)
}

func (s *stage) actor(name string) *actor {
	a := s.actors[name]
	if a == nil {
		s.t.Fatalf("nobody is called %q", name)
	}
	return a
}

func (s *stage) arrive(f []string) {
	class, ok := ParseClass(f[1])
	if !ok {
		s.t.Fatalf("unknown class %q", f[1])
	}
	r := &Request{Class: class}
	for _, arg := range f[2:] {
		k, v, _ := strings.Cut(arg, "=")
		n, _ := strconv.ParseInt(v, 10, 64)
		switch k {
		case "addr":
			r.Keys[ByAddress] = Key(n)
		case "cred":
			r.Keys[ByCredential] = Key(n)
		case "repo":
			r.Keys[ByRepository] = Key(n)
		case "group":
			r.Group = Key(n)
		case "bytes":
			r.Bytes = n
		case "cont":
			r.Continuation = true
		case "proven":
			r.Proven = true
		default:
			s.t.Fatalf("unknown argument %q", arg)
		}
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	a := &actor{cancel: cancel}
	s.actors[f[0]] = a
	go s.admit(ctx, f[0], a, r)
	synctest.Wait()
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if seq := s.c.seq; s.waiters[seq] == "" {
		s.waiters[seq] = f[0] // if it waits at all
	}
}

func (s *stage) admit(ctx context.Context, name string, a *actor, r *Request) {
	start := time.Now()
	p, refusal := s.c.Admit(ctx, r)
	a.permit = p
	text := "admitted"
	if waited := time.Since(start); waited > 0 {
		text = fmt.Sprintf("admitted after %v", waited)
	}
	if refusal != nil {
		scope := "caller"
		if refusal.Shared {
			scope = "shared"
		}
		text = fmt.Sprintf("refused: %s (%s), retry after %v", refusal.Reason, scope, refusal.RetryAfter)
		if refusal.Would {
			text = "would be " + text
		}
		if refusal.Reason == ReasonGone {
			text = "gone"
		}
	}
	s.reports <- name + ": " + text + "\n"
}

// collect returns what was reported since the last step, by name.
func (s *stage) collect() string {
	var lines []string
	for len(s.reports) > 0 {
		lines = append(lines, <-s.reports)
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// queue renders who waits in a class.
func (s *stage) queue(class Class) string {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := &c.classes[class]
	names := s.waiters
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %d held, %d waiting\n", class, cl.held, cl.queue.n)
	for _, l := range []struct {
		name string
		r    *rotation
	}{{"continuations", &cl.queue.ready.continuations}, {"newcomers", &cl.queue.ready.newcomers}} {
		if l.r.n > 0 {
			fmt.Fprintf(&out, "  %s: %s\n", l.name, renderRotation(l.r, names))
		}
	}
	var parked []string
	for _, pk := range c.parkings {
		if pk.class == class && pk.lanes.n() > 0 {
			text := renderRotation(&pk.lanes.continuations, names) + renderRotation(&pk.lanes.newcomers, names)
			kind := []string{"a cap", "a bucket", "other unproven callers"}[pk.key.kind]
			parked = append(parked, fmt.Sprintf("  parked behind %s: %s\n", kind, text))
		}
	}
	slices.Sort(parked)
	return out.String() + strings.Join(parked, "")
}

// renderRotation prints groups in the order of their turns: {…}, in them
// callers: (…), in them waiters by age.
func renderRotation(r *rotation, names map[int64]string) string {
	var out strings.Builder
	g := r.order.head
	for range r.order.n {
		out.WriteString("{")
		cr := g.v.order.head
		for range g.v.order.n {
			out.WriteString("(")
			ws := slices.Clone(cr.v.waiters)
			slices.SortFunc(ws, func(a, b *waiter) int { return int(a.seq - b.seq) })
			for i, w := range ws {
				if i > 0 {
					out.WriteString(" ")
				}
				out.WriteString(names[w.seq])
			}
			out.WriteString(")")
			cr = cr.next
		}
		out.WriteString("}")
		g = g.next
	}
	return out.String()
}
