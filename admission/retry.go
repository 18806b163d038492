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
	if cl.holds.Count > 0 {
		return max(cl.meanHold, float64(time.Millisecond))
	}
	return guessedHold
}

// observe records one finished hold.
func (cl *classState) observe(ns int64) {
	ns = max(ns, 0)
	cl.holds.observe(ns)
	if cl.holds.Count == 1 {
		cl.meanHold = float64(ns)
		return
	}
	cl.meanHold += holdWeight * (float64(ns) - cl.meanHold)
}

// retryAfter is the whole seconds after which cause should be gone.
func (c *Controller) retryAfter(q *claim, cause verdict) int {
	return c.spreadSeconds(c.estimate(q, cause))
}

// estimate is the time in ns until what q lacks is free: until the token comes,
// or until as many permits have ended as there are waiters ahead and one more,
// at the rate at which permits that could help have been ending.
func (c *Controller) estimate(q *claim, cause verdict) float64 {
	if cause.delay > 0 {
		return float64(cause.delay)
	}
	cl := &c.classes[q.class]
	if cl.policy.Max == 0 {
		return maxRetry * float64(time.Second) // not before the configuration changes
	}
	ahead, rate := float64(cl.queue.n), float64(cl.held)/cl.holdEstimate()
	switch cause.reason {
	case ReasonCallerCap, ReasonCallerQueueFull, ReasonOverflow, ReasonClonesFull, ReasonRepositoryFull:
		ahead, rate = 0, float64(max(1, cl.policy.CallerMax[cause.scope]))/cl.holdEstimate()
		if pk := c.parkings[c.ownKey(q, cause.scope)]; pk != nil {
			ahead = float64(pk.queued)
		}
	case ReasonTotalFull:
		rate = c.sharedRate()
	case ReasonUnprovenFull:
		rate = float64(cl.unproven) / cl.holdEstimate()
	case ReasonNone, ReasonGone, ReasonShutdown:
		return 0
	}
	if rate <= 0 {
		return guessedHold
	}
	return (ahead + 1) / rate
}

// sharedRate is how many places of the shared rest come free per ns.
func (c *Controller) sharedRate() (rate float64) {
	for i := Push; i.Git(); i++ {
		cl := &c.classes[i]
		rate += float64(max(0, cl.held-cl.policy.Reserve)) / cl.holdEstimate()
	}
	return rate
}
