package gate

import (
	"errors"
	"sync"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// A holder is slow when it is older than slowAge and its client moves less than
// slowRate bytes per second of the time it was waited for, at least slowLeast.
// Slow holders are ended only while somebody waits for a place they hold.
const (
	slowAge   = 5 * time.Minute
	slowRate  = 32 << 10
	slowLeast = 10 * time.Second
)

var errSlow = errors.New("ended, slowest of those that hold a place, because others wait for one")

// slowHolders lists the running requests of each class. Every one of them looks
// around when its watchdog ticks, so that a queue behind slow clients moves on
// within half a stall limit without a goroutine of its own.
//
// mu protects the sets. Lock order: slowHolders, then a watchdog; the
// controller is asked before mu is taken.
type slowHolders struct {
	mu   sync.Mutex
	sets [admission.NumClasses]map[*watchdog]struct{}
}

// enter lists dog until the returned function is called.
func (h *slowHolders) enter(c admission.Class, dog *watchdog, ctl *admission.Controller) (leave func()) {
	h.mu.Lock()
	if h.sets[c] == nil {
		h.sets[c] = map[*watchdog]struct{}{}
	}
	h.sets[c][dog] = struct{}{}
	h.mu.Unlock()
	dog.mu.Lock()
	dog.tick = func() { h.look(c, dog, ctl) }
	dog.mu.Unlock()
	return func() {
		h.mu.Lock()
		delete(h.sets[c], dog)
		h.mu.Unlock()
	}
}

// look ends the slowest holder of c when dog is slow itself and somebody waits
// because the class is full.
func (h *slowHolders) look(c admission.Class, dog *watchdog, ctl *admission.Controller) {
	now := clock()
	if age, rate, ok := dog.slowness(now); !ok || age < slowAge || rate >= slowRate {
		return
	}
	if !blocked(ctl.Snapshot(), c) {
		return
	}
	h.mu.Lock()
	var slowest *watchdog
	least := float64(slowRate)
	for d := range h.sets[c] {
		if d.cut() != nil {
			h.mu.Unlock()
			return // one that was ended still holds its place
		}
		if age, rate, ok := d.slowness(now); ok && age >= slowAge && rate < least {
			slowest, least = d, rate
		}
	}
	h.mu.Unlock()
	if slowest != nil {
		slowest.cutWith(errSlow)
	}
}

// blocked reports whether a place of c would let a waiter in.
func blocked(s admission.Snapshot, c admission.Class) bool {
	k := s.Classes[c]
	held := k.InUse + k.Abandoned
	switch {
	case k.Waiting == 0:
		return false
	case k.Max != admission.Unlimited && held >= k.Max:
		return true
	}
	return c.Git() && held >= k.Reserve && s.SharedUsed >= s.Rest
}
