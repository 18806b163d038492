package admission

import (
	"math"
	"time"
)

const (
	defaultTotal      = 128
	defaultCallersMax = 1 << 20
	minScaledTotal    = 5 // below it the default reserves leave nothing to share

	maxTotal      = 1 << 20
	maxCallers    = 1 << 24
	maxWaitSize   = 1 << 16
	maxWaitTime   = time.Hour
	maxDeadline   = 7 * 24 * time.Hour
	maxBurst      = 1 << 50
	maxPerSecond  = 1e12
	maxCallerRate = 1e9            // a caller bucket counts in nanoseconds per token
	maxRefill     = 24 * time.Hour // a caller is remembered until its bucket is full
	webhookMin    = 2
	webhookMax    = 8

	// fullDelivery is what a delivery of undeclared length is charged.
	fullDelivery = 25 << 20
)

// steady and small are what is expected of clients: of everybody who moves data,
// and of the senders of small bodies.
var (
	steady = SlowPolicy{Stall: time.Minute}
	small  = SlowPolicy{BodyIdle: time.Second, MinRate: 64 << 10}
)

// defaults are the numbers of a class at total 128. Reserve and Max of git
// classes scale with the total.
var defaults = [NumClasses]ClassPolicy{
	Push: {Slow: steady, Reserve: 32, Max: 96, CallerMax: caps(24, 8), WaitSize: 256, WaitMax: 60 * time.Second,
		Deadline: 6 * time.Hour},
	Read: {Slow: steady, Reserve: 16, Max: 64, CallerMax: caps(32, 16), WaitSize: 256, WaitMax: 60 * time.Second,
		Deadline: 2 * time.Hour},
	Discovery: {Slow: steady, Reserve: 8, Max: 16, CallerMax: caps(4, 0), WaitSize: 1024, WaitMax: 20 * time.Second,
		Deadline: 10 * time.Second},
	Candidate: {Slow: steady, Reserve: 8, Max: 8, CallerMax: caps(2, 0), WaitSize: 1024, WaitMax: 30 * time.Second,
		Deadline: 10 * time.Second},
	Anonymous: {Slow: steady, Reserve: 0, Max: 64, CallerMax: caps(4, 0), WaitSize: 128, WaitMax: 10 * time.Second,
		Deadline: 2 * time.Hour},
	LFS: {Slow: steady, Max: 32, CallerMax: caps(8, 0), WaitSize: 64, WaitMax: 30 * time.Second,
		Deadline: 6 * time.Hour, UnprovenMax: 16},
	Web: {Slow: steady, Max: 16, CallerMax: caps(4, 0), WaitSize: 64, WaitMax: 5 * time.Second,
		Deadline: 60 * time.Second},
	Stream: {Max: 1024, CallerMax: caps(64, 0)},
	Webhook: {Slow: small, Max: 4, Deadline: 8 * time.Second,
		Bucket: BucketPolicy{200, 50}, Bytes: BucketPolicy{32 << 20, 8 << 20}},
	Logout: {Slow: small, Max: 4, WaitSize: 64, WaitMax: time.Second, Deadline: 2 * time.Second,
		Bucket: BucketPolicy{64, 32}},
	LoginStart: {Slow: steady, Max: 8, WaitSize: 64, WaitMax: 5 * time.Second, Deadline: 30 * time.Second,
		Bucket: BucketPolicy{16, 4}},
	LoginCallback: {Slow: steady, Max: 8, Deadline: 30 * time.Second,
		Bucket: BucketPolicy{16, 4}},
	Other: {Max: Unlimited},
}

func caps(address, credential int) (c [NumScopes]int) {
	c[ByAddress], c[ByCredential] = address, credential
	return c
}

// scaled is floor(total*atDefault/128), at least 1 where atDefault is not 0.
func scaled(total, atDefault int) int {
	n := int(int64(total) * int64(atDefault) / defaultTotal)
	if atDefault > 0 {
		n = max(n, 1)
	}
	return n
}

// interval is the time one token takes, at least a nanosecond.
func (b BucketPolicy) interval() int64 {
	return max(1, int64(math.Round(1e9/b.PerSecond)))
}
