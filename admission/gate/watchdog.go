package gate

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// Causes of an end that the gate decided itself.
var (
	errDeadline = errors.New("class deadline passed")
	errStalled  = errors.New("client made no progress")
)

// cutGrace is how much later than the context the write deadline fires, so that
// a 504 still reaches the client.
const cutGrace = 500 * time.Millisecond

// watchdog ends one request that takes too long: by the class deadline, by a
// deadline that counts to the upstream's first byte, or by a client that makes
// no progress while the gate reads from it or writes to it. A context alone
// does not end a stalled upload or an unread download, so the connection's
// deadlines are set as well.
//
// mu protects all fields below it and is held for no I/O except setting
// connection deadlines. Lock order: none is taken inside.
type watchdog struct {
	rc     *http.ResponseController
	own    http.ResponseWriter // the server's writer, below every wrapper
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	timer   *time.Timer
	hardBy  time.Time // zero: none
	firstBy time.Time // zero: none, or the first byte was seen
	slow    admission.SlowPolicy
	busy    [2]time.Time // start of the client read and write in progress; zero: none
	cause   error        // why it cut; nil: it did not
	stopped bool

	started time.Time
	spent   time.Duration // inside reads from and writes to the client
	moved   int64         // bytes that these moved
	pending int64         // what the one in progress moves, some of which may have arrived
	tick    func()        // called now and then while the request runs; nil: not

	taken func() (int64, bool) // see Options.Taken; nil: nobody knows
	sip   sip
}

// sip is what the client has taken out of the kernel's buffer while one write
// waits for room in it.
type sip struct {
	write time.Time // the write it belongs to
	bytes int64     // taken in all, when it was last noted
	at    time.Time // when sipLeast had been taken since; zero: not yet
}

// sipLeast is how much a client must take within the stall limit, in bytes.
// Less is a client that holds its place with a byte now and then.
const sipLeast = 64 << 10

// limits are the times of one request; a zero duration is no limit.
type limits struct {
	hard  time.Duration // from now to the end
	first time.Duration // from now to the upstream's first byte
	slow  admission.SlowPolicy
}

// watch starts a watchdog for w. stop must be called before the handler
// returns; after it the connection's deadlines are not touched any more.
func watch(parent context.Context, w http.ResponseWriter, l limits) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(parent)
	d := &watchdog{rc: http.NewResponseController(w), own: innermost(w), cancel: cancel, slow: l.slow}
	now := clock()
	d.started = now
	if l.hard > 0 {
		d.hardBy = now.Add(l.hard)
	}
	if l.first > 0 {
		d.firstBy = now.Add(l.first)
	}
	d.mu.Lock()
	d.armLocked(now)
	d.mu.Unlock()
	return ctx, d
}

// armLocked sets the timer to the next moment at which something can be due.
// The caller holds mu.
func (d *watchdog) armLocked(now time.Time) {
	next := time.Time{}
	earlier := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	earlier(d.hardBy)
	earlier(d.firstBy)
	for dir, since := range d.busy {
		if limit := d.patience(direction(dir)); limit > 0 {
			earlier(now.Add(limit / 4))
			if since = d.sinceLocked(direction(dir)); !since.IsZero() {
				earlier(since.Add(limit))
			}
		}
	}
	if d.slow.MinRate > 0 {
		earlier(now.Add(slowLeast / 2))
	}
	if next.IsZero() {
		return
	}
	if d.timer == nil {
		d.timer = time.AfterFunc(next.Sub(now), d.check)
		return
	}
	d.timer.Reset(next.Sub(now))
}

func (d *watchdog) check() {
	d.checkOnce()
	d.mu.Lock()
	tick := d.tick
	d.mu.Unlock()
	if tick != nil {
		tick()
	}
}

func (d *watchdog) checkOnce() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return
	}
	now := clock()
	if d.cause != nil {
		d.expireLocked(now, now)
		return
	}
	due := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	switch {
	case due(d.hardBy), due(d.firstBy):
		d.cutLocked(errDeadline, now)
	case d.stalledLocked(now):
		d.cutLocked(errStalled, now)
	default:
		d.armLocked(now)
	}
}

// patience is how long one read from or write to the client may take; 0 is for
// ever.
func (d *watchdog) patience(dir direction) time.Duration {
	if idle := d.slow.BodyIdle; dir == reading && idle > 0 && (d.slow.Stall == 0 || idle < d.slow.Stall) {
		return idle
	}
	return d.slow.Stall
}

// stalledLocked reports whether one read from or write to the client has been
// going on for too long, or the client was slower than the least rate while it
// was waited for. The caller holds mu.
func (d *watchdog) stalledLocked(now time.Time) bool {
	d.sipLocked(now)
	for dir := range d.busy {
		since := d.sinceLocked(direction(dir))
		if limit := d.patience(direction(dir)); limit > 0 && !since.IsZero() && now.Sub(since) >= limit {
			return true
		}
	}
	rate, ok := d.rateLocked(now)
	return ok && rate < float64(d.slow.MinRate)
}

// sinceLocked is when the client last made progress in the read or write that
// goes on; zero when none does. The caller holds mu.
func (d *watchdog) sinceLocked(dir direction) time.Time {
	if since := d.busy[dir]; dir != writing || since.IsZero() || d.sip.write != since || d.sip.at.IsZero() {
		return since
	}
	return d.sip.at
}

// sipLocked notes what the client has taken since a write began to wait. The
// kernel wakes a writer only when a third of its buffer is free, which over a
// thin line can take longer than the stall limit although the client takes all
// it can. The caller holds mu; asking costs one system call a quarter of the
// stall limit.
func (d *watchdog) sipLocked(now time.Time) {
	write := d.busy[writing]
	if d.taken == nil || write.IsZero() {
		return
	}
	n, ok := d.taken()
	switch {
	case !ok:
	case d.sip.write != write:
		d.sip = sip{write: write, bytes: n}
	case n-d.sip.bytes >= sipLeast:
		d.sip.bytes, d.sip.at = n, now
	}
}

// cutWith ends the request now, unless it is over.
func (d *watchdog) cutWith(cause error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.stopped && d.cause == nil {
		d.cutLocked(cause, clock())
	}
}

func (d *watchdog) cutLocked(cause error, now time.Time) {
	d.cause = cause
	d.cancel(cause)
	d.expireLocked(now, now.Add(cutGrace))
}

// expireLocked ends reading from the client now and writing to it at write, and
// comes back: a wrapper that was about to write may move the connection's
// deadline once more. The caller holds mu.
//
// The write deadline is set on the server's own writer, which any goroutine may
// do. A wrapper's fields belong to the goroutine that writes: Caddy's
// idle-timeout writer has no lock, and its reader has one.
func (d *watchdog) expireLocked(now, write time.Time) {
	_ = d.rc.SetReadDeadline(now)
	_ = http.NewResponseController(d.own).SetWriteDeadline(write)
	if d.timer == nil {
		d.timer = time.AfterFunc(cutGrace, d.check)
		return
	}
	d.timer.Reset(cutGrace)
}

// innermost returns the writer below all wrappers.
func innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = u.Unwrap()
	}
}

// sawFirstByte ends the deadline to the upstream's first byte.
func (d *watchdog) sawFirstByte() {
	d.mu.Lock()
	d.firstBy = time.Time{}
	d.mu.Unlock()
}

// endless lifts the limits of the class: the request became a stream.
func (d *watchdog) endless() {
	d.mu.Lock()
	d.hardBy, d.firstBy, d.slow = time.Time{}, time.Time{}, admission.SlowPolicy{}
	d.mu.Unlock()
}

// direction is one of the two ways in which a client makes progress.
type direction uint8

const (
	reading direction = iota
	writing
)

// begin and end bracket one read from or write to the client; pending is how
// many bytes it will have moved when it ends.
func (d *watchdog) begin(dir direction, pending int) {
	d.mu.Lock()
	d.busy[dir] = clock()
	d.pending = int64(pending)
	d.mu.Unlock()
}

func (d *watchdog) end(dir direction, bytes int) {
	now := clock()
	d.mu.Lock()
	d.spent += now.Sub(d.busy[dir])
	d.moved += int64(bytes)
	d.pending = 0
	d.busy[dir] = time.Time{}
	d.mu.Unlock()
}

// slowness reports for how long the request runs and how many bytes per second
// its client takes or gives: bytes over the time spent inside reads and writes,
// so that a thoughtful upstream is not held against it. ok is false when the
// client was not waited for long enough to say.
func (d *watchdog) slowness(now time.Time) (age time.Duration, rate float64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rate, ok = d.rateLocked(now)
	return now.Sub(d.started), rate, ok && !d.stopped && d.cause == nil
}

func (d *watchdog) rateLocked(now time.Time) (rate float64, ok bool) {
	spent := d.spent
	for _, since := range d.busy {
		if !since.IsZero() {
			spent += now.Sub(since)
		}
	}
	if spent < slowLeast {
		return 0, false
	}
	return float64(d.moved+d.pending) / spent.Seconds(), true
}

// cut says why the watchdog ended the request, or nil.
func (d *watchdog) cut() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cause
}

// stop ends the watchdog and returns what cut returns. Taking mu waits for a
// check that already runs.
func (d *watchdog) stop() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	if d.timer != nil {
		d.timer.Stop()
	}
	d.cancel(nil)
	return d.cause
}
