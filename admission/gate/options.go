package gate

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
)

// Next is the rest of the handler chain.
type Next func(http.ResponseWriter, *http.Request) error

// Options are what one handler needs beside the shared State. They are not
// changed after New.
type Options struct {
	// Site separates the repositories, challenges and answers of different
	// sites that share one State. Empty is a site like any other.
	Site string

	// Profile says how the upstream spells repositories. Zero is generic.
	Profile classify.Profile

	// ClientIP names the client. isCaller is false when the address belongs to
	// a proxy that is not trusted to name its clients: caller caps and caller
	// buckets do not apply then. Nil uses the peer of the connection.
	ClientIP func(*http.Request) (addr netip.Addr, isCaller bool)

	// IPv4Bits and IPv6Bits are the prefix lengths of a caller. Zero means 32
	// and 64.
	IPv4Bits, IPv6Bits int

	// Prepare returns a copy of r, bound to its own writer, that next can serve
	// beside r. The copy keeps the values and the end of r's context. Nil uses
	// Request.Clone.
	Prepare func(r *http.Request, w http.ResponseWriter) *http.Request

	// StatusOf is the status that an error of next stands for, 0 when it says
	// nothing. Nil says nothing.
	StatusOf func(error) int

	// Placeholder evaluates the placeholders of `caller_max n by …`. Nil leaves
	// those caps out of force.
	Placeholder func(r *http.Request, name string) string

	// RefuseStatus overrides the status of a refusal per class; zero keeps 503
	// for shared and 429 for caller refusals. Allowed: 429 and 503.
	RefuseStatus [admission.NumClasses]int

	// Log receives one Event per refusal. It must be fast and must not block;
	// nil drops them. An Event holds no secret and no caller-chosen value.
	Log func(Event)

	// Taken returns a function that says how many bytes the peer of an HTTP/1.x
	// request's connection has taken so far, nil or false where nobody knows. It
	// must be safe for concurrent use and not block. Nil: a client makes progress
	// when a write to it ends.
	Taken func(*http.Request) func() (bytes int64, ok bool)

	// Ingress configures webhook, logout and login paths; nil means none.
	Ingress *IngressConfig

	// People says who is known beside proof by asking.
	People People

	// Rule evaluates the operator's own matchers. Nil has none.
	Rule func(*http.Request) Rule

	// StreamRefuses refuses an upstream's stream when class stream is full; by
	// default it goes on in the class where it began.
	StreamRefuses bool
}

// Event is one refusal or question, for logs.
type Event struct {
	Class  admission.Class
	Reason string
	Status int
	Retry  time.Duration
	Would  bool // dry run: the request was let through
}

// Gate is the middleware of one handler. It is immutable and safe for
// concurrent use.
type Gate struct {
	state   *State
	opts    Options
	ingress *ingress

	preset   *classify.Preset // nil: no forge
	stripped map[string]bool  // the operator's own identity headers
}

// New returns a Gate on state. It fails when the ingress configuration is
// invalid.
func New(state *State, opts Options) (*Gate, error) {
	if opts.ClientIP == nil {
		opts.ClientIP = peerAddr
	}
	if opts.IPv4Bits == 0 {
		opts.IPv4Bits = 32
	}
	if opts.IPv6Bits == 0 {
		opts.IPv6Bits = 64
	}
	if opts.Prepare == nil {
		opts.Prepare = func(r *http.Request, _ http.ResponseWriter) *http.Request { return r.Clone(r.Context()) }
	}
	if opts.StatusOf == nil {
		opts.StatusOf = func(error) int { return 0 }
	}
	g := &Gate{state: state, opts: opts, preset: opts.Profile.Preset(), stripped: strippedNames(opts.People.StripHeaders)}
	if opts.Ingress != nil {
		in, err := newIngress(opts.Ingress, state)
		if err != nil {
			return nil, err
		}
		g.ingress = in
	}
	return g, nil
}

func peerAddr(r *http.Request) (netip.Addr, bool) {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}, false
	}
	return ap.Addr().Unmap().WithZone(""), true
}

// clock is the one place where the gate reads the time.
func clock() time.Time { return time.Now() }
