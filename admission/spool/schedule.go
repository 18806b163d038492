package spool

import (
	"container/heap"
	"slices"
	"time"
)

// Lane is one of the two rotations of a hook. A repository is in Repair while
// its oldest due delivery has failed before, else in Recent; never in both.
type Lane uint8

// The lanes.
const (
	Recent Lane = iota
	Repair
	numLanes
)

func (l Lane) String() string { return [...]string{"recent", "repair"}[l] }

// Limits says when a delivery that keeps failing is set aside.
type Limits struct {
	Tries int           // failed attempts; at least 1
	For   time.Duration // since the first failure
}

// Trial is how often and since when a delivery has failed.
type Trial struct {
	Attempts  int       // failed attempts
	FirstFail time.Time // zero = none
	NotBefore time.Time // no attempt earlier; zero = at once
}

// Turn is one attempt to make.
type Turn struct {
	Lane       Lane
	Repository string
	Seq        uint64
}

// Schedule decides which kept delivery of one hook is attempted next. Time is
// a parameter, so it is a pure function of its calls. It is not safe for
// concurrent use.
//
// A repository's deliveries form a line in order of their sequence numbers;
// only the oldest is ever attempted, and one at a time. A repository is due
// when its line has a head, nothing of it is being attempted and the head may
// be tried again. Each lane visits its due repositories in key order after
// its own cursor, the two lanes in turn; so a due repository waits at most as
// many turns of its lane as there are due repositories in it.
//
// Cost: O(log n) to find and O(n) to move within the n due repositories.
type Schedule struct {
	limits Limits
	lines  map[string]*line
	due    [numLanes][]string // sorted keys
	cursor [numLanes]string   // the key visited last
	later  laterHeap          // lines whose head waits for its time
	next   Lane
}

// line is one repository.
type line struct {
	key   string
	items []item // by sequence number
	busy  uint64 // what is being attempted; 0 = nothing
	where position
	index int // in the heap
}

type position uint8

const (
	nowhere position = iota
	inRecent
	inRepair
	inLater
)

type item struct {
	seq uint64
	Trial
}

// NewSchedule returns an empty schedule. Its cursors stand before the first
// key.
func NewSchedule(l Limits) *Schedule {
	return &Schedule{limits: l, lines: map[string]*line{}}
}

// SetLimits applies to failures from now on.
func (s *Schedule) SetLimits(l Limits) { s.limits = l }

// Len returns how many repositories have something kept or attempted.
func (s *Schedule) Len() int { return len(s.lines) }

// Add puts a delivery into its repository's line, at its place by sequence
// number. A sequence number that is being attempted keeps its attempt.
func (s *Schedule) Add(repository string, seq uint64, t Trial, now time.Time) {
	l := s.line(repository)
	at, found := l.find(seq)
	if !found {
		l.items = slices.Insert(l.items, at, item{seq, t})
	}
	s.place(l, now)
}

// Busy reports whether something of the repository is kept or attempted: a
// newer delivery must then be kept and not tried.
func (s *Schedule) Busy(repository string) bool { return s.lines[repository] != nil }

// Begin marks a delivery that is not kept as being attempted. The repository
// must not be Busy.
func (s *Schedule) Begin(repository string, seq uint64) { s.line(repository).busy = seq }

// Due reports whether Next would find a turn in a lane it may use.
func (s *Schedule) Due(now time.Time, repair bool) bool {
	s.wake(now)
	return len(s.due[Recent]) > 0 || repair && len(s.due[Repair]) > 0
}

// Next picks the next attempt and marks its repository as busy. With repair
// false only the lane Recent is looked at, and the lanes' turn stays.
func (s *Schedule) Next(now time.Time, repair bool) (Turn, bool) {
	s.wake(now)
	lane := s.next
	if !repair || len(s.due[lane]) == 0 {
		lane = Recent
	}
	if len(s.due[lane]) == 0 && repair {
		lane = Repair
	}
	if len(s.due[lane]) == 0 {
		return Turn{}, false
	}
	if repair {
		s.next = 1 - lane
	}
	l := s.lines[s.visit(lane)]
	s.remove(l)
	l.busy = l.items[0].seq
	return Turn{lane, l.key, l.busy}, true
}

// visit moves the lane's cursor to the next due key and returns it.
func (s *Schedule) visit(lane Lane) string {
	keys := s.due[lane]
	i, found := slices.BinarySearch(keys, s.cursor[lane])
	if found {
		i++
	}
	if i == len(keys) {
		i = 0
	}
	s.cursor[lane] = keys[i]
	return keys[i]
}

// Done takes a delivery out: delivered, set aside or dropped. Its attempt, if
// one runs, is over.
func (s *Schedule) Done(repository string, seq uint64, now time.Time) {
	l := s.lines[repository]
	if l == nil {
		return
	}
	if at, found := l.find(seq); found && at == 0 {
		l.items = l.items[1:] // the usual case; append lets go of the front
	} else if found {
		l.items = slices.Delete(l.items, at, at+1)
	}
	if l.busy == seq {
		l.busy = 0
	}
	s.place(l, now)
}

// Failed ends an attempt that is to be made again, wait later. It returns the
// delivery's new state, and whether its limit is reached: then it was taken
// out and the next of its repository goes.
func (s *Schedule) Failed(repository string, seq uint64, now time.Time, wait func(attempts int) time.Duration) (t Trial, dead bool) {
	l := s.lines[repository]
	if l == nil {
		return t, false
	}
	at, found := l.find(seq)
	if !found {
		s.Done(repository, seq, now)
		return t, false
	}
	it := &l.items[at]
	it.fail(now, wait)
	t = it.Trial
	if s.limits.over(t, now) {
		s.Done(repository, seq, now)
		return t, true
	}
	s.Release(repository, seq, now)
	return t, false
}

func (t *Trial) fail(now time.Time, wait func(attempts int) time.Duration) {
	t.Attempts++
	if t.FirstFail.IsZero() {
		t.FirstFail = now
	}
	t.NotBefore = now.Add(wait(t.Attempts))
}

func (l Limits) over(t Trial, now time.Time) bool {
	return t.Attempts >= l.Tries || now.Sub(t.FirstFail) >= l.For
}

// Release ends an attempt that says nothing about the delivery.
func (s *Schedule) Release(repository string, seq uint64, now time.Time) {
	if l := s.lines[repository]; l != nil && l.busy == seq {
		l.busy = 0
		s.place(l, now)
	}
}

// Retry makes a delivery due now and forgets its failures.
func (s *Schedule) Retry(repository string, seq uint64, now time.Time) {
	if l := s.lines[repository]; l != nil {
		if at, found := l.find(seq); found {
			l.items[at].Trial = Trial{}
			s.place(l, now)
		}
	}
}

// Attempting returns what is being attempted of the repository, 0 = nothing.
func (s *Schedule) Attempting(repository string) uint64 {
	if l := s.lines[repository]; l != nil {
		return l.busy
	}
	return 0
}

// Wake returns when the next waiting repository becomes due.
func (s *Schedule) Wake() (time.Time, bool) {
	if len(s.later) == 0 {
		return time.Time{}, false
	}
	return s.later[0].items[0].NotBefore, true
}

// Waiting returns how many repositories are due in each lane and how many
// wait for their time.
func (s *Schedule) Waiting() (recent, repair, later int) {
	return len(s.due[Recent]), len(s.due[Repair]), len(s.later)
}

func (s *Schedule) line(key string) *line {
	l := s.lines[key]
	if l == nil {
		l = &line{key: key}
		s.lines[key] = l
	}
	return l
}

func (l *line) find(seq uint64) (int, bool) {
	if n := len(l.items); n > 0 && l.items[n-1].seq < seq {
		return n, false // the usual case
	}
	return slices.BinarySearchFunc(l.items, seq, func(it item, seq uint64) int {
		switch {
		case it.seq < seq:
			return -1
		case it.seq > seq:
			return 1
		}
		return 0
	})
}

// wake moves lines whose time has come into their lanes.
func (s *Schedule) wake(now time.Time) {
	for len(s.later) > 0 && !s.later[0].items[0].NotBefore.After(now) {
		s.place(s.later[0], now)
	}
}

// place puts a line where its state says it belongs.
func (s *Schedule) place(l *line, now time.Time) {
	s.remove(l)
	switch {
	case l.busy != 0:
	case len(l.items) == 0:
		delete(s.lines, l.key)
	case l.items[0].NotBefore.After(now):
		l.where = inLater
		heap.Push(&s.later, l)
	default:
		lane := Recent
		l.where = inRecent
		if l.items[0].Attempts > 0 {
			lane, l.where = Repair, inRepair
		}
		i, _ := slices.BinarySearch(s.due[lane], l.key)
		s.due[lane] = slices.Insert(s.due[lane], i, l.key)
	}
}

// remove takes a line out of its lane or the heap.
func (s *Schedule) remove(l *line) {
	switch l.where {
	case inRecent, inRepair:
		lane := Recent
		if l.where == inRepair {
			lane = Repair
		}
		if i, found := slices.BinarySearch(s.due[lane], l.key); found {
			s.due[lane] = slices.Delete(s.due[lane], i, i+1)
		}
	case inLater:
		heap.Remove(&s.later, l.index)
	}
	l.where = nowhere
}

// laterHeap orders lines by the time of their heads.
type laterHeap []*line

func (h laterHeap) Len() int { return len(h) }
func (h laterHeap) Less(i, j int) bool {
	a, b := h[i].items[0].NotBefore, h[j].items[0].NotBefore
	return a.Before(b) || a.Equal(b) && h[i].key < h[j].key
}
func (h laterHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *laterHeap) Push(x any) {
	l := x.(*line)
	l.index = len(*h)
	*h = append(*h, l)
}
func (h *laterHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return l
}
