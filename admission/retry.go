package admission

import (
	"math"
	"time"
)

const (
	minRetry = 1   // seconds
	maxRetry = 300 // seconds
	// maxHorizon bounds every computed wait, so that sums cannot overflow.
	maxHorizon = int64(365 * 24 * time.Hour)
	// guessedHold stands in for the mean hold time until one was seen.
	guessedHold = float64(5 * time.Second)
	// holdWeight is the weight of the newest hold in the moving average.
	holdWeight = 0.1
)

// refusalCache keeps every Refusal that was ever needed: there are only so many
// different ones, so refusing allocates nothing once it is warm.
type refusalCache [NumClasses][NumReasons][2][2]*[maxRetry + 1]Refusal

func (rc *refusalCache) get(class Class, r Reason, shared, would bool, seconds int) *Refusal {
	row := &rc[class][r][bit(shared)][bit(would)]
	if *row == nil {
		*row = new([maxRetry + 1]Refusal)
		for s := range *row {
			(*row)[s] = Refusal{Reason: r, Class: class, Shared: shared, Would: would, RetryAfter: time.Duration(s) * time.Second}
		}
	}
	return &(*row)[seconds]
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// spreadSeconds turns an estimate into whole seconds within the limits, never
// sooner than the estimate and up to a quarter of it (at least two seconds)
// later. An estimate beyond the limit cannot be told truly; it is spread below
// the limit instead.
func (c *Controller) spreadSeconds(ns float64) int {
	s := ns / float64(time.Second)
	if !(s < maxRetry) {
		return maxRetry - int(c.spread()*maxRetry/5)
	}
	s = max(s, minRetry)
	extra := int(c.spread() * (max(2, s/4) + 1))
	return min(int(math.Ceil(s))+extra, maxRetry)
}

// holdEstimate is how long a permit of the class is held.
func (cl *classState) holdEstimate() float64 {
	if cl.meanHold > 0 {
		return cl.meanHold
	}
	return guessedHold
}

// observe records one finished hold.
func (cl *classState) observe(ns int64) {
	ns = max(ns, 0)
	cl.holds.observe(ns)
	if cl.meanHold == 0 {
		cl.meanHold = float64(ns)
		return
	}
	cl.meanHold += holdWeight * (float64(ns) - cl.meanHold)
}

// estimate is when what q lacks should be free, in ns.
func (c *Controller) estimate(q *claim, cl *classState, v verdict) float64 {
	if v.delay > 0 {
		return float64(v.delay)
	}
	holders := cl.held
	switch v.reason {
	case ReasonCallerCap:
		holders = cl.policy.CallerMax[v.scope]
	case ReasonTotalFull:
		holders = c.git.held
	}
	return cl.holdEstimate() / float64(max(1, holders))
}
