package admission

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// bucket is the token bucket of a class, for requests or bytes. All its methods
// take controller time; the controller's clock never runs backwards, which the
// limiter below relies on. A charge above the burst is capped at the burst, so
// that it can be met at all. Guarded by Controller.mu.
type bucket struct {
	lim    *rate.Limiter // nil until the first policy that has this bucket
	policy BucketPolicy
	base   time.Time
	sure   int64 // no more tokens than there are: what the last look found, minus takes
}

// apply changes rate and burst. The level carries over in tokens: a larger
// bucket is not fuller than before, a smaller one keeps at most its burst. A
// bucket that was off goes on from where its old numbers brought it.
func (b *bucket) apply(p BucketPolicy, now int64) {
	b.policy, b.sure = p, 0
	if !p.On() {
		return
	}
	if b.lim == nil {
		b.lim = rate.NewLimiter(rate.Limit(p.PerSecond), int(p.Burst))
		return
	}
	t := b.base.Add(time.Duration(now))
	b.lim.SetLimitAt(t, rate.Limit(p.PerSecond))
	b.lim.SetBurstAt(t, int(p.Burst))
}

// charge is what n tokens cost here.
func (b *bucket) charge(n int64) int64 { return min(max(n, 0), b.policy.Burst) }

// shortage is the time until n tokens are there, 0 when they are. n may exceed
// the burst: it then stands for several charges one after another. It changes
// no level.
func (b *bucket) shortage(now, n int64) int64 {
	if !b.policy.On() || n <= b.sure {
		return 0
	}
	tokens := b.lim.TokensAt(b.base.Add(time.Duration(now)))
	b.sure = int64(tokens)
	missing := float64(n) - tokens
	if missing <= 0 || n <= 0 {
		return 0
	}
	wait := missing / b.policy.PerSecond * float64(time.Second)
	if wait < 1 {
		return 0
	}
	return int64(math.Ceil(min(wait, float64(maxHorizon))))
}

// take removes tokens that shortage has shown to be there, and reports whether
// there were any to remove.
func (b *bucket) take(now, n int64) bool {
	if !b.policy.On() || n <= 0 {
		return false
	}
	b.sure -= n
	return b.lim.AllowN(b.base.Add(time.Duration(now)), int(n))
}

// giveBack returns tokens taken before; the bucket never gets fuller than full.
// A Reservation cannot do it: once its time has passed, cancelling it restores
// nothing. A negative charge is exact, and a test pins that down.
func (b *bucket) giveBack(now, n int64) {
	if b.lim != nil && n > 0 {
		b.lim.AllowN(b.base.Add(time.Duration(now)), -int(n))
	}
}

// callerBucket is the bucket every caller of a class has, kept in one number per
// caller: the time at which the bucket is full again. Switched off, it keeps its
// numbers, so that levels can be carried over when it is switched on again.
type callerBucket struct {
	on       bool
	interval int64 // time per token; 0 = there never was such a bucket
	depth    int64 // interval * burst
}

// next is the bucket under p.
func (b callerBucket) next(p BucketPolicy) callerBucket {
	if !p.On() {
		b.on = false
		return b
	}
	i := p.interval()
	return callerBucket{on: true, interval: i, depth: i * p.Burst}
}

// shortage is the time until n tokens are there for a bucket full at time full.
func (b callerBucket) shortage(now, full, n int64) int64 {
	return max(0, max(full, now)+n*b.interval-b.depth-now)
}

// taken is the new full time after one token is taken.
func (b callerBucket) taken(now, full int64) int64 { return max(full, now) + b.interval }

// converted carries the level of a bucket over from b to next in tokens: a
// bucket that is full stays full, another keeps its tokens, at most next's burst.
func (b callerBucket) converted(now, full int64, next callerBucket) int64 {
	if full <= now || b.interval == 0 {
		return full
	}
	level := float64(b.depth-(full-now)) / float64(b.interval)
	return now + max(0, next.depth-int64(level*float64(next.interval)))
}
