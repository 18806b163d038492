package spool

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite expected output")

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestScheduleScenarios plays the files of testdata/schedule: a line is a
// step, the lines after it that begin with ">" are what it printed.
//
//	limits <tries> <for>     when a delivery is set aside
//	at <duration>            the time since the start
//	keep <repository> <n>…   deliveries that are durable
//	fresh <repository> <n>   an attempt at one that is not kept
//	next [recent]            the next turn; recent: no permit for repair
//	done|release <repository> <n>
//	fail <repository> <n> <wait>
//	show                     lanes, their cursors and what waits
func TestScheduleScenarios(t *testing.T) {
	files, _ := filepath.Glob("testdata/schedule/*.txt")
	if len(files) == 0 {
		t.Fatal("no scenario")
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got := playScenario(t, string(text))
			if *update {
				if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("got:\n%s", got)
			}
		})
	}
}

func playScenario(t *testing.T, text string) string {
	var out strings.Builder
	s := NewSchedule(Limits{DefaultTries, DefaultTryFor})
	now := epoch
	for sc := bufio.NewScanner(strings.NewReader(text)); sc.Scan(); {
		line := sc.Text()
		if strings.HasPrefix(line, ">") {
			continue
		}
		fmt.Fprintln(&out, line)
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		if f[0] == "at" {
			now = epoch.Add(duration(t, f[1]))
			continue
		}
		if printed := playStep(t, s, now, f); printed != "" {
			fmt.Fprintln(&out, "> "+printed)
		}
	}
	return out.String()
}

func playStep(t *testing.T, s *Schedule, now time.Time, f []string) string {
	t.Helper()
	switch f[0] {
	case "limits":
		s.SetLimits(Limits{int(number(t, f[1])), duration(t, f[2])})
	case "keep":
		for _, n := range f[2:] {
			s.Add(f[1], number(t, n), Trial{}, now)
		}
	case "fresh":
		if s.Busy(f[1]) {
			return "busy: keep it"
		}
		s.Begin(f[1], number(t, f[2]))
	case "next":
		turn, ok := s.Next(now, len(f) == 1)
		if !ok {
			return "nothing"
		}
		return fmt.Sprintf("%s %s %d", turn.Lane, turn.Repository, turn.Seq)
	case "done":
		s.Done(f[1], number(t, f[2]), now)
	case "release":
		s.Release(f[1], number(t, f[2]), now)
	case "fail":
		trial, dead := s.Failed(f[1], number(t, f[2]), now, func(int) time.Duration { return duration(t, f[3]) })
		return fmt.Sprintf("attempts %d dead %v", trial.Attempts, dead)
	case "show":
		return show(s)
	default:
		t.Fatalf("unknown step %q", f[0])
	}
	return ""
}

func show(s *Schedule) string {
	var parts []string
	for lane := range numLanes {
		parts = append(parts, fmt.Sprintf("%s %v after %q", lane, s.due[lane], s.cursor[lane]))
	}
	text := strings.Join(parts, "; ")
	if at, ok := s.Wake(); ok {
		text += fmt.Sprintf("; %d wait, next at %s", len(s.later), at.Sub(epoch))
	}
	return text
}

func number(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// oracle is what a schedule must do, told by plain lists.
type oracle struct {
	kept    map[string][]uint64 // by repository, in order
	trials  map[uint64]Trial
	busy    map[string]uint64
	waiting [numLanes]map[string]*wait
}

// wait is one repository that is due: who was due in its lane since, and how
// many turns that lane has had.
type wait struct {
	others map[string]bool
	turns  int
}

func (o *oracle) lane(repo string, now time.Time) (Lane, bool) {
	list := o.kept[repo]
	if len(list) == 0 || o.busy[repo] != 0 {
		return 0, false
	}
	trial := o.trials[list[0]]
	if trial.NotBefore.After(now) {
		return 0, false
	}
	if trial.Attempts > 0 {
		return Repair, true
	}
	return Recent, true
}

// refresh follows who is due.
func (o *oracle) refresh(now time.Time) {
	for lane := range numLanes {
		due := map[string]bool{}
		for repo := range o.kept {
			if l, ok := o.lane(repo, now); ok && l == lane {
				due[repo] = true
			}
		}
		for repo := range o.waiting[lane] {
			if !due[repo] {
				delete(o.waiting[lane], repo)
			}
		}
		for repo := range due {
			if o.waiting[lane][repo] == nil {
				o.waiting[lane][repo] = &wait{others: map[string]bool{}}
			}
		}
		for _, w := range o.waiting[lane] {
			for repo := range due {
				w.others[repo] = true
			}
		}
	}
}

// TestScheduleProperties: every turn is the oldest delivery of a repository
// that is due, in the lane it belongs to, one at a time; something due is
// always found; a due repository waits at most as many turns of its lane as
// repositories were due in it meanwhile; the limits of a failing head hold.
func TestScheduleProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{rapid.IntRange(1, 4).Draw(t, "tries"), time.Minute}
		s, now := NewSchedule(limits), epoch
		o := &oracle{kept: map[string][]uint64{}, trials: map[uint64]Trial{}, busy: map[string]uint64{}}
		for lane := range numLanes {
			o.waiting[lane] = map[string]*wait{}
		}
		repos := rapid.IntRange(1, 8).Draw(t, "repositories")
		repo := func() string { return string(rune('a' + rapid.IntRange(0, repos-1).Draw(t, "repo"))) }
		var seq uint64
		t.Repeat(map[string]func(*rapid.T){
			"keep": func(t *rapid.T) {
				seq++
				name := repo()
				s.Add(name, seq, Trial{}, now)
				o.kept[name] = append(o.kept[name], seq)
				o.trials[seq] = Trial{}
			},
			"pass": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "seconds")) * time.Second)
			},
			"next": func(t *rapid.T) { o.turn(t, s, now, rapid.Bool().Draw(t, "repair")) },
			"end": func(t *rapid.T) {
				name := repo()
				if n := o.busy[name]; n != 0 {
					o.end(t, s, name, n, now, limits)
				}
			},
			"drop": func(t *rapid.T) {
				name := repo()
				if list := o.kept[name]; len(list) > 0 {
					i := rapid.IntRange(0, len(list)-1).Draw(t, "which")
					if list[i] != o.busy[name] {
						s.Done(name, list[i], now)
						o.kept[name] = append(list[:i:i], list[i+1:]...)
					}
				}
			},
			"": func(*rapid.T) { o.refresh(now) },
		})
	})
}

func (o *oracle) turn(t *rapid.T, s *Schedule, now time.Time, repair bool) {
	o.refresh(now)
	turn, ok := s.Next(now, repair)
	if !ok {
		if len(o.waiting[Recent]) > 0 || repair && len(o.waiting[Repair]) > 0 {
			t.Fatalf("nothing, but due: %v", o.waiting)
		}
		return
	}
	lane, due := o.lane(turn.Repository, now)
	switch {
	case !due:
		t.Fatalf("%v is not due", turn)
	case lane != turn.Lane, lane == Repair && !repair:
		t.Fatalf("%v in lane %v", turn, lane)
	case o.kept[turn.Repository][0] != turn.Seq:
		t.Fatalf("%v is not the oldest of %v", turn, o.kept[turn.Repository])
	}
	o.busy[turn.Repository] = turn.Seq
	for _, w := range o.waiting[turn.Lane] {
		w.turns++
		if w.turns > len(w.others) {
			t.Fatalf("waited %d turns with %d repositories due", w.turns, len(w.others))
		}
	}
	delete(o.waiting[turn.Lane], turn.Repository)
}

func (o *oracle) end(t *rapid.T, s *Schedule, name string, n uint64, now time.Time, limits Limits) {
	delete(o.busy, name)
	remove := func() { o.kept[name] = o.kept[name][1:] }
	switch rapid.IntRange(0, 2).Draw(t, "how") {
	case 0:
		s.Done(name, n, now)
		remove()
	case 1:
		s.Release(name, n, now)
	default:
		trial := o.trials[n]
		trial.Attempts++
		if trial.FirstFail.IsZero() {
			trial.FirstFail = now
		}
		trial.NotBefore = now.Add(5 * time.Second)
		o.trials[n] = trial
		want := trial.Attempts >= limits.Tries || now.Sub(trial.FirstFail) >= limits.For
		got, dead := s.Failed(name, n, now, func(int) time.Duration { return 5 * time.Second })
		if dead != want || got != trial {
			t.Fatalf("failed: %v %v, want %v %v", got, dead, trial, want)
		}
		if dead {
			remove()
		}
	}
}

func BenchmarkScheduleTurn(b *testing.B) {
	s := NewSchedule(Limits{DefaultTries, DefaultTryFor})
	for i := range 10_000 {
		s.Add(fmt.Sprintf("owner/repository-%05d", i), uint64(i+1), Trial{}, epoch)
	}
	seq := uint64(20_000)
	for b.Loop() {
		turn, _ := s.Next(epoch, true)
		s.Done(turn.Repository, turn.Seq, epoch)
		seq++
		s.Add(turn.Repository, seq, Trial{}, epoch)
	}
}
