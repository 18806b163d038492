package admission

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"runtime"
	"slices"
)

// limited is a configuration in which one request meets a caller cap, a caller
// bucket and a class bucket, none of which refuses.
func limited() Config {
	return Config{Classes: map[string]*ClassConfig{"anonymous": {
		CallerMax:    ptr(4),
		CallerBucket: &BucketConfig{Burst: 1 << 23, PerSecond: 100},
		Bucket:       &BucketConfig{Burst: 1 << 40, PerSecond: 1e9},
	}}}
}

func randomKeys(n int) []Key {
	r := rand.New(rand.NewPCG(1, 2))
	keys := make([]Key, n)
	for i := range keys {
		keys[i] = Key(r.Uint64() | 1)
	}
	return keys
}

// BenchmarkDecide is one decision and its End, with caller cap, caller bucket
// and class bucket, for callers that the table already holds.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{1, 1_000, 1_000_000} {
		b.Run(fmt.Sprint("callers=", n), func(b *testing.B) {
			c := NewController(compile(b, limited()))
			keys := randomKeys(n)
			r := Request{Class: Anonymous}
			for range 2 {
				for _, k := range keys {
					r.Keys[ByAddress] = k
					p, _ := c.TryAdmit(&r)
					p.End(OutcomeCompleted)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				r.Keys[ByAddress] = keys[i%n]
				p, refusal := c.TryAdmit(&r)
				if refusal != nil {
					b.Fatal(refusal.Reason)
				}
				p.End(OutcomeCompleted)
			}
		})
	}
}

// BenchmarkDecideGivenTime is BenchmarkDecide where the handler passes the time.
func BenchmarkDecideGivenTime(b *testing.B) {
	c := NewController(compile(b, limited()))
	keys := randomKeys(1000)
	r := Request{Class: Anonymous, Now: time.Now()}
	b.ReportAllocs()
	for i := range b.N {
		r.Keys[ByAddress] = keys[i%len(keys)]
		p, refusal := c.TryAdmit(&r)
		if refusal != nil {
			b.Fatal(refusal.Reason)
		}
		p.End(OutcomeCompleted)
	}
}

// BenchmarkRefuse is one refusal, as a flood meets it.
func BenchmarkRefuse(b *testing.B) {
	c := NewController(compile(b, Config{Total: 5, WaitOff: true}))
	keys := randomKeys(1000)
	r := Request{Class: Anonymous}
	if _, refusal := c.TryAdmit(&r); refusal != nil {
		b.Fatal(refusal.Reason)
	}
	b.ReportAllocs()
	for i := range b.N {
		r.Keys[ByAddress] = keys[i%len(keys)]
		if _, refusal := c.TryAdmit(&r); refusal == nil {
			b.Fatal("admitted")
		}
	}
}

// BenchmarkBareLimiters is what a rate limit alone costs elsewhere: a lookup in
// one of 256 locked maps and AllowN.
func BenchmarkBareLimiters(b *testing.B) {
	for _, n := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprint("callers=", n), func(b *testing.B) {
			var shards [256]struct {
				sync.Mutex
				m map[Key]*rate.Limiter
			}
			keys := randomKeys(n)
			for i := range shards {
				shards[i].m = make(map[Key]*rate.Limiter)
			}
			for _, k := range keys {
				shards[k>>56].m[k] = rate.NewLimiter(100, 1<<20)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				k := keys[i%n]
				s := &shards[k>>56]
				s.Lock()
				l := s.m[k]
				s.Unlock()
				if !l.AllowN(time.Now(), 1) {
					b.Fatal("refused")
				}
			}
		})
	}
}

// BenchmarkQueue is one arrival and one release, which grants the next, with n
// others waiting: for the class, each from a group of its own, or all behind the
// cap of one caller.
func BenchmarkQueue(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		for _, kind := range []string{"class", "cap"} {
			b.Run(fmt.Sprintf("waiters=%d/behind=%s", n, kind), func(b *testing.B) { benchQueue(b, n, kind == "cap") })
		}
	}
}

func benchQueue(b *testing.B, n int, ownCap bool) {
	cc := &ClassConfig{Wait: &WaitConfig{Size: 2*n + 2, Max: Duration(time.Hour)}, CallerMax: ptr(1), Max: ptr(2)}
	if !ownCap {
		cc.Max, cc.CallerMax = ptr(1), ptr(0)
	}
	c := NewController(compile(b, Config{Classes: map[string]*ClassConfig{"anonymous": cc}}))
	request := func(i int) *Request {
		k := Key(1)
		if !ownCap {
			k = Key(i%(4*n) + 1)
		}
		r := from(Anonymous, k)
		r.Group = k
		return r
	}
	held := mustAdmit(b, c, request(0))
	var waiters []*waiter
	for i := range n {
		waiters = append(waiters, mustWait(b, c, request(i)))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		waiters = append(waiters, mustWait(b, c, request(i+n)))
		held.End(OutcomeCompleted)
		if waiters[0].state != granted { // turns follow arrival here
			b.Fatal("it was not the first one's turn")
		}
		held, _ = c.collect(waiters[0], false)
		waiters = waiters[1:]
	}
}

// BenchmarkApply changes the caller bucket under a million remembered callers,
// the dearest configuration change there is.
func BenchmarkApply(b *testing.B) {
	cc := func(rate float64) *Policy {
		return compile(b, anonymousOnly(ClassConfig{CallerBucket: &BucketConfig{Burst: 10, PerSecond: rate}}))
	}
	policies := []*Policy{cc(0.001), cc(0.002)}
	c, _ := standing(b, Config{})
	c.Apply(policies[0])
	for i := range Key(1_000_000) {
		c.callers.insert(c.callers.id(Anonymous, ByAddress, i+1), Anonymous).full = int64(time.Hour)
	}
	b.ResetTimer()
	for i := range b.N {
		c.Apply(policies[(i+1)%2])
	}
}

// BenchmarkReleaseToStart is the time from the end of a permit to the moment at
// which the waiter it goes to runs: the decision and one switch of goroutines.
func BenchmarkReleaseToStart(b *testing.B) {
	c := NewController(compile(b, anonymousOnly(ClassConfig{Max: ptr(1), CallerMax: ptr(0), Wait: &WaitConfig{4, Duration(time.Hour)}})))
	held := mustAdmit(b, c, from(Anonymous, 1))
	started, queued := make(chan time.Time), make(chan struct{})
	go func() {
		for range b.N {
			queued <- struct{}{}
			p, _ := c.Admit(b.Context(), from(Anonymous, 2))
			now := time.Now()
			held = p
			started <- now
		}
	}()
	times := make([]time.Duration, 0, b.N)
	b.ResetTimer()
	for range b.N {
		<-queued
		for c.Snapshot().Classes[Anonymous].Waiting == 0 {
			runtime.Gosched()
		}
		released := time.Now()
		held.End(OutcomeCompleted)
		times = append(times, (<-started).Sub(released))
	}
	b.StopTimer()
	held.End(OutcomeCompleted)
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2]), "p50-ns")
	b.ReportMetric(float64(times[len(times)*99/100]), "p99-ns")
}
