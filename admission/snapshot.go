package admission

import (
	"math"
	"time"
)

// HoldBounds are the upper bounds of the hold histogram's buckets, in seconds;
// one more bucket holds everything above.
var HoldBounds = [...]float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 21600}

var holdBoundsNS = func() (ns [len(HoldBounds)]int64) {
	for i, s := range HoldBounds {
		ns[i] = int64(math.Round(s * float64(time.Second)))
	}
	return ns
}()

// Histogram counts hold times. Buckets are not cumulative; the last one is
// everything above the last bound.
type Histogram struct {
	Buckets [len(HoldBounds) + 1]uint64
	Count   uint64
	Sum     float64 // seconds
}

func (h *Histogram) observe(ns int64) {
	i := 0
	for i < len(holdBoundsNS) && ns > holdBoundsNS[i] {
		i++
	}
	h.Buckets[i]++
	h.Count++
	h.Sum += float64(ns) / float64(time.Second)
}

// Snapshot is the state of a controller at one moment.
type Snapshot struct {
	Total      int // what the git classes share in all
	InUse      int // of it: held by all git classes, abandoned included
	Rest       int // what no class has reserved
	SharedUsed int // of the rest
	Classes    [NumClasses]ClassSnapshot
	// Decisions count what Admit, TryAdmit and Move decided and what
	// CountRefusal was told, since the controller was made.
	Decisions [NumClasses][NumDecisions]uint64
	// Outcomes count how permits ended.
	Outcomes [NumClasses][NumOutcomes]uint64
	// Holds are the times from grant to End.
	Holds   [NumClasses]Histogram
	Callers CallersSnapshot
	Permits int // live permits, those of dry run included
	Closed  bool
}

// ClassSnapshot is the state of one class.
type ClassSnapshot struct {
	Class      Class
	Reserve    int
	Max        int // Unlimited = no bound
	InUse      int // places held while the client is there
	Abandoned  int // places held after the client left
	SharedUsed int // places taken from the shared rest
	Waiting    int // parked ones included
	Beyond     int // granted in dry run outside every limit, in none of the above
	DryRun     bool
	Bucket     BucketSnapshot // requests of the class
	Bytes      BucketSnapshot // declared bytes of the class
}

// BucketSnapshot is the level of a bucket; the zero value is no bucket.
type BucketSnapshot struct {
	Burst  int64
	Tokens float64
}

func (b *bucket) snapshot(now int64) BucketSnapshot {
	if !b.policy.On() {
		return BucketSnapshot{}
	}
	return BucketSnapshot{Burst: b.policy.Burst, Tokens: b.level(now)}
}

// Snapshot is the bucket's level at now.
func (b *Bucket) Snapshot(now time.Time) BucketSnapshot { return b.b.snapshot(b.advance(now)) }

// CallersSnapshot is the state of the caller table.
type CallersSnapshot struct {
	Tracked  int
	Max      int
	Bytes    int    // memory of the table
	Overflow uint64 // decisions that found it full and used the shared budget
}

// Snapshot copies the state. It costs a few microseconds under the lock.
func (c *Controller) Snapshot() Snapshot {
	c.lock(zeroTime)
	defer c.mu.Unlock()
	s := Snapshot{
		Total: c.git.total, InUse: c.git.held, Rest: c.git.rest, SharedUsed: c.git.used,
		Callers: CallersSnapshot{Tracked: c.callers.n, Max: c.callers.max, Bytes: c.callers.bytes(), Overflow: c.overflowed},
		Permits: c.permits.live, Closed: c.closed,
	}
	for i := range c.classes {
		cl := &c.classes[i]
		s.Classes[i] = cl.snapshot(c.now)
		s.Decisions[i], s.Outcomes[i], s.Holds[i] = cl.decisions, cl.outcomes, cl.holds
	}
	return s
}

func (cl *classState) snapshot(now int64) ClassSnapshot {
	s := ClassSnapshot{
		Class: cl.class, Reserve: cl.policy.Reserve, Max: cl.policy.Max,
		InUse: cl.held - cl.abandoned, Abandoned: cl.abandoned, Beyond: cl.beyond,
		Waiting: cl.queue.n, DryRun: cl.policy.DryRun,
		Bucket: cl.bucket.snapshot(now), Bytes: cl.bytes.snapshot(now),
	}
	if cl.class.Git() {
		s.SharedUsed = max(0, cl.held-cl.policy.Reserve)
	}
	return s
}
