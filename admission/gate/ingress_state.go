package gate

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// IngressState is the part of a State that webhooks, logouts and logins use:
// the budgets beside the engine's, who is known, and the counters. It lives as
// long as the State and survives every configuration. Safe for concurrent use.
//
// mu protects everything below it. It is taken before the Controller's lock
// and is never held across I/O; all webhook permits are granted under it, so
// that the group's buckets, a hook's own and a sender's share are one decision.
type IngressState struct {
	controller *admission.Controller
	counters   ingressCounters
	buffers    bodyBuffers

	mu        sync.Mutex
	hooks     map[string]*budget     // own budgets, by site and path
	strangers shares                 // of unknown senders
	senders   knownSet               // groups with a verified delivery
	holds     map[*hookHold]struct{} // webhook permits held
	waiters   []*hookWaiter          // for one, known senders first
	readers   map[*reader]struct{}   // small bodies being read
	logouts   logoutState
	login     loginState
	streaks   map[string]int64 // refusals in a row by hook, at most hookMax
}

// Bounds of what an IngressState remembers.
const (
	knownMax    = 1024
	knownFor    = 24 * time.Hour
	strangerMax = 1024
	hookMax     = 1024
)

func newIngressState(c *admission.Controller) *IngressState {
	return &IngressState{
		controller: c,
		hooks:      map[string]*budget{},
		strangers:  shares{of: map[admission.Key]*budget{}},
		senders:    newKnownSet(),
		holds:      map[*hookHold]struct{}{},
		readers:    map[*reader]struct{}{},
		logouts:    newLogoutState(),
		login:      newLoginState(),
		streaks:    map[string]int64{},
	}
}

// IngressSnapshot is a copy of the counters and sizes of an IngressState. Maps
// hold every member of their closed sets.
type IngressSnapshot struct {
	Webhooks map[string]int64 // by HookOutcome; the sum is every request on a hook's path
	Limited  map[string]int64 // by class: refused by a bucket, a pool or a wait
	Logouts  map[string]int64 // by LogoutOutcome
	Senders  int              // known sender groups, configured ones not counted
	Forgers  int              // groups that sent forged logouts lately
	States   int              // login states seen and not yet used
	Waiting  int              // login starts waiting
	// Starts and Callbacks are the levels of the login budgets; those of known
	// and unknown callbacks together. Zero until first used.
	Starts, Callbacks admission.BucketSnapshot
	Streaks           map[string]int64 // refused deliveries since the last that was taken, by configured path
}

// Snapshot copies the counters.
func (s *IngressState) Snapshot() IngressSnapshot {
	snap := IngressSnapshot{Webhooks: map[string]int64{}, Limited: map[string]int64{}, Logouts: map[string]int64{}}
	for i := range s.counters.hooks {
		snap.Webhooks[HookOutcome(i).String()] = s.counters.hooks[i].Load()
	}
	for i := range s.counters.logouts {
		snap.Logouts[LogoutOutcome(i).String()] = s.counters.logouts[i].Load()
	}
	for i, c := range limitedClasses {
		snap.Limited[c.String()] = s.counters.limited[i].Load()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	snap.Streaks = maps.Clone(s.streaks)
	snap.Senders, snap.Forgers = len(s.senders.last), len(s.logouts.forgers.last)
	snap.States, snap.Waiting = len(s.login.states), len(s.login.starts.waiting)
	now := clock()
	snap.Starts, snap.Callbacks = together(now, s.login.starts.bucket), together(now, s.login.known, s.login.unknown)
	return snap
}

// together is the sum of the levels of buckets; nil ones count as none.
func together(now time.Time, all ...*admission.Bucket) (sum admission.BucketSnapshot) {
	for _, b := range all {
		if b != nil {
			one := b.Snapshot(now)
			sum.Burst, sum.Tokens = sum.Burst+one.Burst, sum.Tokens+one.Tokens
		}
	}
	return sum
}

// budget is a pair of buckets that are taken together.
type budget struct{ requests, bytes *admission.Bucket }

func newBudget(requests, bytes admission.BucketPolicy, now time.Time) *budget {
	return &budget{admission.NewBucket(requests, now), admission.NewBucket(bytes, now)}
}

func (b *budget) apply(requests, bytes admission.BucketPolicy, now time.Time) {
	b.requests.Apply(requests, now)
	b.bytes.Apply(bytes, now)
}

// shortage is the time until one request of n bytes fits.
func (b *budget) shortage(now time.Time, n int64) time.Duration {
	return max(b.requests.Shortage(now, 1), b.bytes.Shortage(now, n))
}

func (b *budget) take(now time.Time, n int64) {
	b.requests.Take(now, 1)
	b.bytes.Take(now, n)
}

func (b *budget) full(now time.Time) bool { return b.requests.Full(now) && b.bytes.Full(now) }

// shares are the budgets of unknown senders, one for each group. When the
// table is full of budgets that are not, newcomers share one.
type shares struct {
	of       map[admission.Key]*budget
	overflow *budget
}

func (s *shares) get(group admission.Key, requests, bytes admission.BucketPolicy, now time.Time) *budget {
	if b := s.of[group]; b != nil {
		b.apply(requests, bytes, now)
		return b
	}
	if len(s.of) >= strangerMax {
		for k, b := range s.of {
			if b.full(now) {
				delete(s.of, k)
			}
		}
	}
	if len(s.of) >= strangerMax {
		if s.overflow == nil {
			s.overflow = newBudget(requests, bytes, now)
		}
		s.overflow.apply(requests, bytes, now)
		return s.overflow
	}
	b := newBudget(requests, bytes, now)
	s.of[group] = b
	return b
}

// ownLocked returns the budget of a hook, nil when it has none.
func (s *IngressState) ownLocked(key string, requests, bytes admission.BucketPolicy, now time.Time) *budget {
	if !requests.On() && !bytes.On() {
		return nil
	}
	b := s.hooks[key]
	if b == nil {
		if len(s.hooks) >= hookMax {
			for k, old := range s.hooks {
				if old.full(now) {
					delete(s.hooks, k)
				}
			}
		}
		b = newBudget(requests, bytes, now)
		s.hooks[key] = b
	}
	b.apply(requests, bytes, now)
	return b
}

// knownSet remembers up to knownMax groups for knownFor after their last
// proof. When it is full the one whose proof is oldest goes.
type knownSet struct {
	last   map[admission.Key]time.Time
	newest time.Time
}

func newKnownSet() knownSet { return knownSet{last: map[admission.Key]time.Time{}} }

func (k *knownSet) add(group admission.Key, now time.Time) {
	if _, again := k.last[group]; !again && len(k.last) >= knownMax {
		oldest := group
		for g, at := range k.last {
			if o, ok := k.last[oldest]; !ok || at.Before(o) {
				oldest = g
			}
		}
		delete(k.last, oldest)
	}
	k.last[group] = now
	k.newest = now
}

func (k *knownSet) has(group admission.Key, now time.Time) bool {
	at, ok := k.last[group]
	if ok && now.Sub(at) > knownFor {
		delete(k.last, group)
		ok = false
	}
	return ok
}

// any reports whether some group is known.
func (k *knownSet) any(now time.Time) bool {
	return len(k.last) > 0 && now.Sub(k.newest) <= knownFor
}

func inside(addr netip.Addr, lists ...[]netip.Prefix) bool {
	for _, list := range lists {
		for _, p := range list {
			if p.Contains(addr) {
				return true
			}
		}
	}
	return false
}

// quarter is the share of one unknown group.
func quarter(p admission.BucketPolicy) admission.BucketPolicy {
	if !p.On() {
		return p
	}
	return admission.BucketPolicy{Burst: max(1, p.Burst/4), PerSecond: p.PerSecond / 4}
}
