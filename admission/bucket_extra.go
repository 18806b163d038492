package admission

import "time"

// Bucket is the engine's token bucket for a budget that an embedder decides
// together with a class: a route's own, or one sender's share. It starts full
// and is not safe for concurrent use; the embedder's lock guards it. Times
// before the latest one seen count as that one.
type Bucket struct {
	b   bucket
	now int64
}

// NewBucket returns a full bucket; a policy that is off makes one that never
// refuses.
func NewBucket(p BucketPolicy, now time.Time) *Bucket {
	b := &Bucket{b: bucket{base: now}}
	b.b.apply(p, 0)
	return b
}

// Policy returns the numbers in force.
func (b *Bucket) Policy() BucketPolicy { return b.b.policy }

// Apply changes the numbers; the level carries over as in Controller.Apply. It
// does nothing when they are the same.
func (b *Bucket) Apply(p BucketPolicy, now time.Time) {
	if p != b.b.policy {
		b.b.apply(p, b.advance(now))
	}
}

// Charge is what n tokens cost here: at most the burst.
func (b *Bucket) Charge(n int64) int64 { return b.b.charge(n) }

// Shortage is the time until n tokens are there, 0 when they are. n is capped
// at the burst.
func (b *Bucket) Shortage(now time.Time, n int64) time.Duration {
	return time.Duration(b.b.shortage(b.advance(now), b.b.charge(n)))
}

// Take removes n tokens, capped at the burst, that Shortage has shown to be
// there; when they are not, it removes none.
func (b *Bucket) Take(now time.Time, n int64) { b.b.take(b.advance(now), b.b.charge(n)) }

// GiveBack returns n tokens taken before; the bucket never gets fuller than full.
func (b *Bucket) GiveBack(now time.Time, n int64) { b.b.giveBack(b.advance(now), b.b.charge(n)) }

// Level is the number of tokens that are there; 0 for a bucket that is off.
func (b *Bucket) Level(now time.Time) float64 { return b.b.level(b.advance(now)) }

// Full reports whether forgetting the bucket would change nothing.
func (b *Bucket) Full(now time.Time) bool {
	return !b.b.policy.On() || b.Level(now) >= float64(b.b.policy.Burst)
}

func (b *Bucket) advance(t time.Time) int64 {
	b.now = max(b.now, int64(t.Sub(b.b.base)))
	return b.now
}

func (b *bucket) level(now int64) float64 {
	if !b.policy.On() {
		return 0
	}
	return b.lim.TokensAt(b.base.Add(time.Duration(now)))
}

// Levels returns the tokens in a class's request and byte buckets at now, 0
// for a bucket that is off. It lets an embedder keep a part of them for some
// requests: the level can only have risen when its own lock keeps every other
// request of the class out.
func (c *Controller) Levels(class Class, now time.Time) (requests, bytes float64) {
	t := c.since(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(t)
	cl := &c.classes[class]
	return cl.bucket.level(c.now), cl.bytes.level(c.now)
}

// Stopper is what would stop r at once, ReasonNone for nothing: the caller's own
// limits before the class's places, and those before its buckets. It changes
// and counts nothing.
func (c *Controller) Stopper(r *Request) Reason {
	c.lock(r.Now)
	defer c.mu.Unlock()
	q := newClaim(r)
	return c.decide(&q).reason
}
