package cases

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// requestHeader carries the id of a request to the upstream, so that what was
// sent and what arrived can be compared.
const requestHeader = "X-Case-Request"

// classHeader and repositoryHeader carry the gateway's own view to the
// upstream; the adapter sets them from the product's placeholders.
const (
	classHeader      = "X-Case-Class"
	repositoryHeader = "X-Case-Repository"
)

// sent is one request as it left the client.
type sent struct {
	id, step  string
	round     int // how often the step ran before
	behaviour behaviour
	wire      *wire
	flow      string // the client address it stands for
	at        time.Time
}

// call is one request as it reached an upstream.
type call struct {
	upstream     string
	request      *sent // nil when it cannot be told
	at, end      time.Time
	class        string
	repository   string
	method, uri  string
	header       http.Header
	bodySHA      [32]byte
	bodyBytes    int64
	bodyComplete bool
	question     bool // the gateway's own, without the credential
	status       int
	finished     bool // the whole answer was written
	challenge    string
}

// ledger holds what was sent and what arrived in one case. Safe for concurrent
// use; its size is bounded by the case's number of requests.
type ledger struct {
	mu         sync.Mutex
	byID       map[string]*sent
	byDelivery map[string]*sent
	calls      []*call
	released   map[string]int // step → rounds released, as round+1
	releaseAll bool
	changed    chan struct{} // closed and replaced when released grows or a call arrives
	accepted   map[string]bool
}

func newLedger() *ledger {
	return &ledger{
		byID: map[string]*sent{}, byDelivery: map[string]*sent{}, released: map[string]int{},
		changed: make(chan struct{}), accepted: map[string]bool{},
	}
}

// deliveryHeaders name a delivery in the profiles the runner can sign.
var deliveryHeaders = []string{"X-Github-Delivery", "X-Gitea-Delivery", "X-Gitlab-Event-Uuid", "Webhook-Id", "X-Gogs-Delivery", "Idempotency-Key"}

func deliveryID(get func(string) string) string {
	for _, name := range deliveryHeaders {
		if v := get(name); v != "" {
			return v
		}
	}
	return ""
}

// register notes a request before it is sent.
func (l *ledger) register(s *sent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byID[s.id] = s
	if d := s.wire.deliveryID(); d != "" && l.byDelivery[d] == nil {
		l.byDelivery[d] = s
	}
}

// accept makes a credential one that the fake forge takes.
func (l *ledger) accept(credential string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted[credential] = true
}

func (l *ledger) accepts(credential string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accepted[credential]
}

// begin notes an arrival.
func (l *ledger) begin(upstream string, r *http.Request) *call {
	c := &call{
		upstream: upstream, at: time.Now(), class: r.Header.Get(classHeader), repository: r.Header.Get(repositoryHeader),
		method: r.Method, uri: r.RequestURI, header: r.Header.Clone(),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.request = l.byID[r.Header.Get(requestHeader)]
	if c.request == nil {
		c.request = l.byDelivery[deliveryID(r.Header.Get)]
	}
	if c.request != nil && c.request.wire != nil {
		carried, _ := c.request.wire.headers.Get("Authorization")
		c.question = carried != "" && r.Header.Get("Authorization") == ""
	}
	l.calls = append(l.calls, c)
	l.notifyLocked()
	return c
}

func (l *ledger) finish(c *call, finished bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.end.IsZero() {
		c.end = time.Now()
	}
	c.finished = c.finished || finished
	l.notifyLocked()
}

// update changes a call under the lock.
func (l *ledger) update(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

func (l *ledger) notifyLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// release lets the held calls of the steps finish, also those that arrive
// later. No names means every step, and for good.
func (l *ledger) release(rounds map[string]int, names ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(names) == 0 {
		l.releaseAll = true
	}
	for _, n := range names {
		l.released[n] = rounds[n]
	}
	l.notifyLocked()
}

// held reports whether a call must still wait, and a channel that is closed
// when the answer may have changed.
func (l *ledger) held(s *sent) (bool, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.releaseAll || (s != nil && l.released[s.step] > s.round) {
		return false, nil
	}
	return true, l.changed
}

// arrived reports whether a request has reached an upstream.
func (l *ledger) arrived(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.byID[id]
	return s != nil && slices.ContainsFunc(l.calls, func(c *call) bool { return c.request == s })
}

// seen returns copies of the calls that keep selects, in order of arrival.
func (l *ledger) seen(keep func(*call) bool) []call {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []call
	for _, c := range l.calls {
		if keep == nil || keep(c) {
			out = append(out, *c)
		}
	}
	return out
}

// peak is the largest number of selected calls that ran at one instant between
// from and to; zero times mean no bound. A call that has not ended runs on.
func peak(calls []call, from, to time.Time) int {
	type edge struct {
		at   time.Time
		step int
	}
	var edges []edge
	for _, c := range calls {
		end := c.end
		if end.IsZero() {
			end = time.Now()
		}
		if (!to.IsZero() && c.at.After(to)) || (!from.IsZero() && end.Before(from)) {
			continue
		}
		edges = append(edges, edge{c.at, 1}, edge{end, -1})
	}
	slices.SortStableFunc(edges, func(a, b edge) int {
		if d := a.at.Compare(b.at); d != 0 {
			return d
		}
		return a.step - b.step // an end before a start of the same instant
	})
	now, most := 0, 0
	for _, e := range edges {
		now += e.step
		most = max(most, now)
	}
	return most
}

// flowOf is the client address that a call carries.
func flowOf(c *call) string {
	if c.request != nil {
		return c.request.flow
	}
	first, _, _ := strings.Cut(c.header.Get("X-Forwarded-For"), ",")
	return strings.TrimSpace(first)
}
