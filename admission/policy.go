package admission

import "time"

// Unlimited is the Max of a class that is never full.
const Unlimited = -1

// Policy holds the resolved numbers of one configuration. It comes from
// Config.Compile and never changes afterwards, so it may be read freely.
type Policy struct {
	Total           int
	CallersMax      int
	UpstreamWorkers int // 0 = not given
	Classes         [NumClasses]ClassPolicy
}

// ClassPolicy holds the resolved numbers of one class.
type ClassPolicy struct {
	Reserve   int            // part of the total no other class can take
	Max       int            // most permits held at once; Unlimited = no bound
	CallerMax [NumScopes]int // most permits per key of that scope; 0 = no cap
	CustomBy  [4]string      // placeholder whose value makes Keys[ByCustom0+i]; "" = unused
	WaitSize  int            // most waiters; 0 = refuse at once
	WaitMax   time.Duration  // longest wait
	Deadline  time.Duration  // 0 = none
	Slow      SlowPolicy     // what is done about slow clients
	Bucket    BucketPolicy   // requests of the class
	Bytes     BucketPolicy   // declared bytes of the class
	// CallerBucket counts requests of one Keys[ByAddress].
	CallerBucket BucketPolicy
	// UnprovenMax bounds the permits of requests that are not Proven; 0 = no
	// bound.
	UnprovenMax int
	DryRun      bool
}

// SlowPolicy bounds how slow a client may be. The engine only carries it.
type SlowPolicy struct {
	Stall    time.Duration // longest read from or write to the client without progress; 0 = none
	BodyIdle time.Duration // longest a request body brings nothing; 0 = no limit of its own
	MinRate  int64         // bytes per second while the client is waited for; 0 = none
}

// BucketPolicy is a token bucket; Burst 0 means there is none.
type BucketPolicy struct {
	Burst     int64
	PerSecond float64
}

// On reports whether there is a bucket.
func (b BucketPolicy) On() bool { return b.Burst > 0 }

// Reserved is the sum of the git classes' reserves.
func (p *Policy) Reserved() int {
	n := 0
	for c := Push; c.Git(); c++ {
		n += p.Classes[c].Reserve
	}
	return n
}

// Rest is the part of the total that no class has reserved.
func (p *Policy) Rest() int { return p.Total - p.Reserved() }
