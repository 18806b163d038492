package gate

import (
	"time"

	"github.com/caddy-admission/gateway/admission/webhook"
)

// RefusedDelivery is a delivery that neither its receiver nor the spool took.
// Unless Verified, its strings come from anybody.
type RefusedDelivery struct {
	Hook       string // the configured path
	Profile    string
	Outcome    HookOutcome
	Status     int   // of the answer
	Cause      error // of the Committer, with HookKeepFailed
	Verified   bool
	ID, Event  string
	Repository string // only when verified
	At         time.Time
}

// report tells of a delivery that was refused and counts for its hook.
func (x *hookExchange) report(o HookOutcome) {
	x.st.streak(x.h.Path, o)
	tell := x.g.ingress.refused
	if tell == nil || o == HookDelivered || o == HookKept {
		return
	}
	d := x.delivery
	if d == nil {
		id, event := x.h.Profile.Claims(x.r.Header)
		d = &webhook.Delivery{ID: id, Event: event}
	}
	tell(&RefusedDelivery{
		Hook: x.h.Path, Profile: x.h.Profile.Name, Outcome: o, Status: x.status, Cause: x.cause,
		Verified: d.Verified, ID: d.ID, Event: d.Event, Repository: d.Repository, At: x.now,
	})
}

// streakOf says what an outcome means for the refusals in a row of its hook:
// capacity and receivers count, because a sender that meets them too often
// disables the hook. What anybody can cause without budget does not.
func streakOf(o HookOutcome) (counts, ends bool) {
	switch o {
	case HookDelivered, HookKept:
		return false, true
	case HookRequests, HookBytes, HookOwnBucket, HookSender, HookPermit, HookDisplaced,
		HookUpstreamRefused, HookUpstreamFailed, HookDeadline, HookPanic, HookKeepFailed:
		return true, false
	}
	return false, false
}

// streak counts refusals in a row per configured path.
func (s *IngressState) streak(path string, o HookOutcome) {
	counts, ends := streakOf(o)
	if !counts && !ends {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.streaks[path]
	switch {
	case ends:
		s.streaks[path] = 0
	case known || len(s.streaks) < hookMax:
		s.streaks[path]++
	}
}
