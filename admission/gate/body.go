package gate

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// Bounds of the bodies that are read before a permit is taken. A stalled POST
// would otherwise hold a place, and two git processes, for as long as it likes.
const (
	bodyMax         = 10 << 20 // one body; the rest streams while the permit is held
	bodyAccountMax  = 64 << 20 // all bodies of a State
	bodyCallerMax   = 4 << 20  // all bodies of a caller
	bodyCallerCount = 16       // bodies of a caller that arrive at once
	bodySmall       = 16 << 10 // passes even when the account is used up …
	bodySmallCount  = 1024     // … this many at once
	bodyIdle        = 10 * time.Second
	bodyMinRate     = 4 << 10 // bytes per second, after bodyIdle
	bodyStep        = 4 << 10
)

var (
	errBodyCaller = errors.New("too many request bodies from this caller")
	errBodyShared = errors.New("request body memory is used up")
	errBodySlow   = errors.New("request body arrives too slowly")
)

// bodyAccount bounds the memory of buffered bodies. It grows by what arrived,
// never by what was declared.
//
// mu protects all fields; it is never held across I/O.
type bodyAccount struct {
	mu      sync.Mutex
	used    int64 // sum of all leases' bytes, without those of small ones
	small   int   // leases that live from the reserve
	callers map[admission.Key]*callerBodies
}

type callerBodies struct {
	arriving int
	leases   int
	bytes    int64
}

func newBodyAccount() *bodyAccount {
	return &bodyAccount{callers: make(map[admission.Key]*callerBodies)}
}

// bodyLease is one body's part of the account. close gives it back once.
type bodyLease struct {
	acct    *bodyAccount
	caller  admission.Key // 0: not a caller
	bytes   int64
	small   bool
	arrived bool // it counts no longer among those that arrive
	closed  bool
}

// open begins a body of a caller whose address stands for so many callers.
func (a *bodyAccount) open(caller admission.Key, callers uint64) (*bodyLease, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if caller != 0 {
		c := a.callers[caller]
		if c == nil {
			c = &callerBodies{}
			a.callers[caller] = c
		}
		if uint64(c.arriving) >= bodyCallerCount*callers {
			return nil, errBodyCaller
		}
		c.arriving++
		c.leases++
	}
	return &bodyLease{acct: a, caller: caller}, nil
}

// grow takes n more bytes. full says that this body may not grow further but
// may go on without being buffered.
func (l *bodyLease) grow(n int64) (full bool, err error) {
	a := l.acct
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.callers[l.caller]
	switch {
	case l.bytes+n > bodyMax, c != nil && c.bytes+n > bodyCallerMax:
		return true, nil
	case l.small || a.used+n > bodyAccountMax:
		if l.bytes+n > bodySmall || (!l.small && a.small >= bodySmallCount) {
			return false, errBodyShared
		}
		if !l.small {
			l.small = true
			a.small++
			a.used -= l.bytes
		}
	default:
		a.used += n
	}
	l.bytes += n
	if c != nil {
		c.bytes += n
	}
	return false, nil
}

// arrive says that all of the body is there. Its bytes stay in the account, but
// its caller may send another: what waits for a place, or holds one, is limited
// as a request.
func (l *bodyLease) arrive() {
	a := l.acct
	a.mu.Lock()
	defer a.mu.Unlock()
	l.arriveLocked()
}

func (l *bodyLease) arriveLocked() {
	if c := l.acct.callers[l.caller]; c != nil && !l.arrived {
		c.arriving--
	}
	l.arrived = true
}

func (l *bodyLease) close() {
	a := l.acct
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	if l.small {
		a.small--
	} else {
		a.used -= l.bytes
	}
	l.arriveLocked()
	if c := a.callers[l.caller]; c != nil {
		c.bytes -= l.bytes
		if c.leases--; c.leases == 0 {
			delete(a.callers, l.caller)
		}
	}
}

// body is a request body that was read before the permit.
type body struct {
	data     []byte
	complete bool // data is all of it
	lease    *bodyLease
	pace     bodyPace
}

// readBody reads r's body within the account and replaces r.Body by a copy
// that yields the same bytes. The caller closes the lease of the result when
// the request is over. On an error nothing is held.
func (s *State) readBody(w http.ResponseWriter, r *http.Request, caller admission.Key, callers uint64, slow admission.SlowPolicy) (*body, error) {
	lease, err := s.bodies.open(caller, callers)
	if err != nil {
		return nil, err
	}
	b := &body{lease: lease, pace: bodyPace{slow: slow}}
	if err := b.fill(w, r); err != nil {
		lease.close()
		return nil, err
	}
	original := r.Body
	var rd io.Reader = bytes.NewReader(b.data)
	if !b.complete {
		rd = io.MultiReader(rd, original)
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{rd, original}
	return b, nil
}

func (b *body) fill(w http.ResponseWriter, r *http.Request) error {
	rc := http.NewResponseController(w)
	start := clock()
	last := start
	defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	for {
		if len(b.data) == cap(b.data) {
			if full, err := b.extend(); full || err != nil {
				return err
			}
		}
		_ = rc.SetReadDeadline(b.pace.by(start, last, len(b.data), bodyIdle, bodyMinRate))
		n, err := r.Body.Read(b.data[len(b.data):cap(b.data)])
		b.data = b.data[:len(b.data)+n]
		if n > 0 {
			last = clock()
		}
		switch {
		case err == io.EOF:
			b.complete = true
			b.lease.arrive()
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return errBodySlow
		case err != nil:
			return err
		}
	}
}

// extend makes room for more, doubling what is there when the account allows
// it. full says that the rest of the body must stream.
func (b *body) extend() (full bool, err error) {
	n := max(cap(b.data), bodyStep)
	if full, err = b.lease.grow(int64(n)); (full || err != nil) && n > bodyStep {
		n = bodyStep
		full, err = b.lease.grow(bodyStep)
	}
	if full || err != nil {
		return full, err
	}
	data := make([]byte, len(b.data), cap(b.data)+n)
	copy(data, b.data)
	b.data = data
	return false, nil
}
