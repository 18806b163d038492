package admission

import (
	"slices"
	"time"
)

// model is an independent, slow and simple statement of the rules. It keeps
// lists and counts by scanning them; nothing in it resembles the engine.
type model struct {
	p       *Policy
	now     time.Duration
	live    []*modelRequest
	waiting []*modelRequest // in order of arrival
	levels  map[modelBucket]*modelLevel
}

type modelRequest struct {
	class  Class
	group  Key
	keys   [NumScopes]Key
	cont   bool
	proven bool
	bytes  int64

	permit Permit  // while live and taken
	w      *waiter // once it has waited
	paid   map[*modelLevel]float64
}

type modelBucket struct {
	class Class
	kind  string // "requests", "bytes" or "caller"
	key   Key
}

type modelLevel struct {
	tokens, burst, rate float64
	at                  time.Duration
}

func newModel(p *Policy) *model {
	m := &model{p: p, levels: make(map[modelBucket]*modelLevel)}
	m.fill()
	return m
}

// fill makes the classes' buckets that are new; callers' come with the caller.
func (m *model) fill() {
	for c := range NumClasses {
		m.tokens(c, "requests", 0)
		m.tokens(c, "bytes", 0)
	}
}

func (m *model) held(match func(*modelRequest) bool) (n int) {
	for _, r := range m.live {
		if match(r) {
			n++
		}
	}
	return n
}

func (m *model) heldBy(c Class) int {
	return m.held(func(r *modelRequest) bool { return r.class == c })
}

// place returns why class c has no room.
func (m *model) place(c Class) Reason {
	if m.heldBy(c) >= m.p.Classes[c].Max {
		return ReasonPoolFull
	}
	if !c.Git() {
		return ReasonNone
	}
	used, all := 0, 0
	for g := Push; g.Git(); g++ {
		all += m.heldBy(g)
		used += max(0, m.heldBy(g)-m.p.Classes[g].Reserve)
	}
	if all >= m.p.Total || m.heldBy(c) >= m.p.Classes[c].Reserve && used >= m.p.Rest() {
		return ReasonTotalFull
	}
	return ReasonNone
}

// tokens is the level of one bucket now, or nil when the policy has none.
func (m *model) tokens(c Class, kind string, key Key) *modelLevel {
	bp := m.bucketPolicy(c, kind)
	b := modelBucket{c, kind, key}
	l := m.levels[b]
	if l == nil {
		if !bp.On() {
			return nil
		}
		l = &modelLevel{tokens: float64(bp.Burst), burst: float64(bp.Burst), rate: bp.PerSecond, at: m.now}
		m.levels[b] = l
	}
	l.tokens = min(l.burst, l.tokens+(m.now-l.at).Seconds()*l.rate)
	l.at = m.now
	if !bp.On() {
		return nil
	}
	return l
}

func (m *model) bucketPolicy(c Class, kind string) BucketPolicy {
	switch cp := &m.p.Classes[c]; kind {
	case "requests":
		return cp.Bucket
	case "bytes":
		return cp.Bytes
	default:
		return cp.CallerBucket
	}
}

// missing is the time until l has n tokens.
func (l *modelLevel) missing(n float64) time.Duration {
	if l == nil || l.tokens >= n {
		return 0
	}
	return time.Duration((n - l.tokens) / l.rate * float64(time.Second))
}

// own returns which of the caller's own limits stops r.
func (m *model) own(r *modelRequest) Reason {
	for s := range NumScopes {
		if r.keys[s] == 0 {
			continue
		}
		limit := m.p.Classes[r.class].CallerMax[s]
		n := m.held(func(o *modelRequest) bool { return o.class == r.class && o.keys[s] == r.keys[s] })
		if limit > 0 && n >= limit {
			return s.full()
		}
		if s == ByAddress && !r.cont && m.tokens(r.class, "caller", r.keys[s]).missing(1) > 0 {
			return ReasonCallerBucket
		}
	}
	return ReasonNone
}

func (m *model) unproven(r *modelRequest) Reason {
	limit := m.p.Classes[r.class].UnprovenMax
	if limit > 0 && !r.proven && m.held(func(o *modelRequest) bool { return o.class == r.class && !o.proven }) >= limit {
		return ReasonUnprovenFull
	}
	return ReasonNone
}

func (m *model) charge(r *modelRequest) float64 {
	return float64(min(r.bytes, m.p.Classes[r.class].Bytes.Burst))
}

// shared returns which of the class's buckets stops r.
func (m *model) shared(r *modelRequest) Reason {
	switch {
	case r.cont:
		return ReasonNone
	case m.tokens(r.class, "requests", 0).missing(1) > 0:
		return ReasonClassBucket
	case m.charge(r) > 0 && m.tokens(r.class, "bytes", 0).missing(m.charge(r)) > 0:
		return ReasonByteBucket
	}
	return ReasonNone
}

// stops returns what stops r, in the order in which a refusal names it.
func (m *model) stops(r *modelRequest) Reason {
	for _, f := range []func() Reason{
		func() Reason { return m.own(r) },
		func() Reason { return m.place(r.class) },
		func() Reason { return m.unproven(r) },
		func() Reason { return m.shared(r) },
	} {
		if reason := f(); reason != ReasonNone {
			return reason
		}
	}
	return ReasonNone
}

// unhindered reports whether nothing of its own stops r.
func (m *model) unhindered(r *modelRequest) bool {
	return m.own(r) == ReasonNone && m.unproven(r) == ReasonNone
}

// overtakes reports whether admitting r would pass somebody who waits.
func (m *model) overtakes(r *modelRequest) bool {
	return slices.ContainsFunc(m.waiting, func(w *modelRequest) bool {
		return w.class == r.class && (w.cont || !r.cont) && m.unhindered(w)
	})
}

func (m *model) waitingIn(match func(*modelRequest) bool) (n int) {
	for _, w := range m.waiting {
		if match(w) {
			n++
		}
	}
	return n
}

// mayWait returns ReasonNone when r may join the queue, else why not. victims
// are those of whom one has to leave.
func (m *model) mayWait(r *modelRequest, why Reason) (refusal Reason, victims []*modelRequest) {
	cp := &m.p.Classes[r.class]
	if cp.WaitSize == 0 || cp.Max == 0 {
		return why, nil
	}
	if late := m.tooLate(r, cp.WaitMax); late != ReasonNone {
		return late, nil
	}
	if full := m.shareTaken(r); full != ReasonNone {
		return full, nil
	}
	room := cp.WaitSize
	if r.cont {
		room += cp.WaitSize / 8
	}
	if m.waitingIn(func(w *modelRequest) bool { return w.class == r.class }) < room {
		return ReasonNone, nil
	}
	size := make(map[Key]int)
	newest := make(map[Key]*modelRequest)
	largest := 0
	for _, w := range m.waiting {
		if w.class == r.class {
			size[w.group]++
			newest[w.group] = w
			largest = max(largest, size[w.group])
		}
	}
	if size[r.group]+1 >= largest {
		return ReasonQueueFull, nil
	}
	for g, n := range size {
		if n == largest {
			victims = append(victims, newest[g])
		}
	}
	return ReasonNone, victims
}

func (m *model) tooLate(r *modelRequest, limit time.Duration) Reason {
	if r.cont {
		return ReasonNone
	}
	requests, bytes, own := 1.0, m.charge(r), 1.0
	for _, w := range m.waiting {
		if w.class == r.class && !w.cont {
			requests++
			bytes += m.charge(w)
			if w.keys[ByAddress] == r.keys[ByAddress] {
				own++
			}
		}
	}
	switch {
	case m.tokens(r.class, "requests", 0).missing(requests) > limit:
		return ReasonClassBucket
	case m.charge(r) > 0 && m.tokens(r.class, "bytes", 0).missing(bytes) > limit:
		return ReasonByteBucket
	case r.keys[ByAddress] != 0 && m.tokens(r.class, "caller", r.keys[ByAddress]).missing(own) > limit:
		return ReasonCallerBucket
	}
	return ReasonNone
}

// shareTaken says whether those with one of r's keys wait behind each other with
// half a queue: the caller's own, or its repository's.
func (m *model) shareTaken(r *modelRequest) Reason {
	cp := &m.p.Classes[r.class]
	for s := range NumScopes {
		if r.keys[s] == 0 {
			continue
		}
		same := func(o *modelRequest) bool { return o.class == r.class && o.keys[s] == r.keys[s] }
		queued := m.waitingIn(same)
		fresh := m.waitingIn(func(o *modelRequest) bool { return same(o) && !o.cont })
		if 2*queued < cp.WaitSize {
			continue
		}
		capped := cp.CallerMax[s] > 0 && m.held(same)+queued >= cp.CallerMax[s]
		drained := s == ByAddress && !r.cont &&
			m.tokens(r.class, "caller", r.keys[s]).missing(float64(fresh)+1) > 0
		tracked := cp.CallerMax[s] > 0 || s == ByAddress && cp.CallerBucket.On()
		if tracked && (capped || drained) {
			if s == ByRepository || s == ByDear || s == ByDearRepository {
				return s.full()
			}
			return ReasonCallerQueueFull
		}
	}
	return ReasonNone
}

// admit makes r live and charges it.
func (m *model) admit(r *modelRequest) {
	m.live = append(m.live, r)
	if r.cont {
		return
	}
	r.paid = make(map[*modelLevel]float64)
	pay := func(kind string, key Key, n float64) {
		if l := m.tokens(r.class, kind, key); l != nil {
			l.tokens -= n
			r.paid[l] = n
		}
	}
	pay("requests", 0, 1)
	pay("bytes", 0, m.charge(r))
	if k := r.keys[ByAddress]; k != 0 {
		pay("caller", k, 1)
	}
}

// refund gives back what r was charged.
func (m *model) refund(r *modelRequest) {
	for b, l := range m.levels {
		if n, ok := r.paid[l]; ok {
			m.tokens(b.class, b.kind, b.key)
			l.tokens = min(l.burst, l.tokens+n)
		}
	}
}

func (m *model) end(r *modelRequest) { m.live = without(m.live, r) }

func (m *model) leave(r *modelRequest) { m.waiting = without(m.waiting, r) }

func without(list []*modelRequest, r *modelRequest) []*modelRequest {
	return slices.DeleteFunc(list, func(o *modelRequest) bool { return o == r })
}

// apply changes the policy; levels carry over in tokens.
func (m *model) apply(p *Policy) {
	for b := range m.levels {
		m.tokens(b.class, b.kind, b.key) // up to now under the old numbers
	}
	m.p = p
	for b, l := range m.levels {
		bp := m.bucketPolicy(b.class, b.kind)
		if !bp.On() {
			continue
		}
		full := l.tokens == l.burst && b.kind == "caller" // may have been forgotten meanwhile
		l.burst, l.rate = float64(bp.Burst), bp.PerSecond
		l.tokens = min(l.tokens, l.burst)
		if full {
			l.tokens = l.burst
		}
	}
	m.fill()
}
