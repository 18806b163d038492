package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"time"
)

// Duration is a time.Duration that JSON writes as "90s" and reads as that or
// as integer nanoseconds.
type Duration time.Duration

// MarshalJSON writes the usual Go form.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads "90s" or nanoseconds.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var n int64
	if json.Unmarshal(b, &n) == nil {
		*d = Duration(n)
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return errors.New("a duration is a string like \"90s\" or integer nanoseconds")
	}
	v, err := time.ParseDuration(s)
	*d = Duration(v)
	return err
}

// Config is one spool. The zero value of each limit is its default.
type Config struct {
	// The directory; made with mode 0700 when missing. One gateway process
	// may have it open at a time.
	Dir string `json:"dir"`
	// Bytes of everything kept, dead deliveries included. The files may
	// take twice that plus a few segments. Default: 2 GiB.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// A delivery still undelivered after this is set aside as dead, and a
	// dead one is removed this long after it died. Default: 72h.
	MaxAge Duration `json:"max_age,omitempty"`
	// Deliveries kept, dead ones included. Default: 100000.
	MaxCount int `json:"max_count,omitempty"`
	// What one repository of one hook may hold, as a part of what it holds
	// and what is free together: the first storm can fill this part of
	// MaxBytes and MaxCount, the next this part of what that left. 1 =
	// everything. Default: 0.9.
	RepositoryShare float64 `json:"repository_share,omitempty"`
	// The file with the key that seals credentials; made when missing.
	// Default: the file "key" in the directory.
	KeyFile string `json:"key_file,omitempty"`

	// Bytes at which a new log file is begun. Default: a 64th of MaxBytes,
	// from 1 MiB to 32 MiB.
	SegmentBytes int64 `json:"segment_bytes,omitempty"`

	Disk Disk             `json:"-"` // nil = the operating system's
	Now  func() time.Time `json:"-"` // nil = time.Now
	Rand func() float64   `json:"-"` // spreads retries, [0,1); nil = math/rand
	Log  func(Event)      `json:"-"` // nil = none; called without a lock held, from several goroutines
}

// Defaults of Config.
const (
	DefaultMaxBytes        = 2 << 30
	DefaultMaxAge          = 72 * time.Hour
	DefaultMaxCount        = 100_000
	DefaultRepositoryShare = 0.9
)

// Validate reports everything that is wrong, and changes nothing.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf("spool: "+format, a...)) }
	if c.Dir == "" {
		bad("dir is missing")
	} else if !filepath.IsAbs(c.Dir) {
		bad("dir %q is not an absolute path", c.Dir)
	}
	if c.MaxBytes != 0 && c.MaxBytes < 64<<10 {
		bad("max_bytes %d is below 64 KiB", c.MaxBytes)
	}
	if c.MaxAge != 0 && c.MaxAge < Duration(time.Second) {
		bad("max_age %s is below 1s", time.Duration(c.MaxAge))
	}
	if c.MaxCount < 0 || c.MaxCount > 10_000_000 {
		bad("max_count %d is not between 1 and 10000000", c.MaxCount)
	}
	if c.RepositoryShare < 0 || c.RepositoryShare > 1 {
		bad("repository_share %g is not between 0 and 1", c.RepositoryShare)
	}
	if c.SegmentBytes < 0 {
		bad("segment_bytes %d is negative", c.SegmentBytes)
	}
	return errors.Join(errs...)
}

func (c *Config) maxBytes() int64 { return orDefault(c.MaxBytes, DefaultMaxBytes) }
func (c *Config) maxCount() int   { return orDefault(c.MaxCount, DefaultMaxCount) }
func (c *Config) maxAge() time.Duration {
	return orDefault(time.Duration(c.MaxAge), DefaultMaxAge)
}
func (c *Config) share() float64 { return orDefault(c.RepositoryShare, DefaultRepositoryShare) }
func (c *Config) segmentBytes() int64 {
	return orDefault(c.SegmentBytes, min(max(c.maxBytes()/64, 1<<20), 32<<20))
}
func (c *Config) keyFile() string {
	return orDefault(c.KeyFile, filepath.Join(c.Dir, "key"))
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// Keep says when a hook's deliveries are written to the spool.
type Keep string

// The modes of a hook.
const (
	KeepOff      Keep = "off"      // never; the sender waits for the receiver
	KeepOverflow Keep = "overflow" // when the receiver does not take it within FreshWait
	KeepAlways   Keep = "always"   // before anything else
)

// HookConfig is one hook with a receiver of its own.
type HookConfig struct {
	// What entries are kept under: a hook that comes back under the same
	// name delivers what it left. Usually the public path.
	Name string `json:"name"`
	// The receiver: http or https, with its path.
	Deliver string `json:"deliver"`
	// off, overflow or always. Default: overflow.
	Keep Keep `json:"keep,omitempty"`
	// Attempts at the receiver at a time, fresh and replayed. Default: 4.
	Permits int `json:"permits,omitempty"`
	// How long a fresh attempt may take before the delivery is kept and
	// acknowledged. Default: 1s.
	FreshWait Duration `json:"fresh_wait,omitempty"`
	// How long one attempt may take. Default: 60s.
	Timeout Duration `json:"timeout,omitempty"`
	// A delivery is dead after this many failed attempts. Default: 5.
	Tries int `json:"tries,omitempty"`
	// Or this long after its first failure. Default: 10m.
	TryFor Duration `json:"try_for,omitempty"`
	// What a receiver's status means where it differs from the profile's
	// table: done, again or never by status code ("404") or class ("5xx").
	Status map[string]Verdict `json:"status,omitempty"`
	// Further headers of the sender to keep, and further ones to keep only
	// sealed.
	Headers       []string `json:"headers,omitempty"`
	SecretHeaders []string `json:"secret_headers,omitempty"`
	// TLS towards the receiver.
	TLS *TLSConfig `json:"tls,omitempty"`

	// Credentials the configuration knows: a delivered header of exactly
	// this value is not written, and each attempt gets the value that the
	// configuration has then.
	Restore map[string]string `json:"-"`
	// For tests: what carries the requests instead of an HTTP client.
	Transport http.RoundTripper `json:"-"`
}

// TLSConfig is how the receiver's certificate is checked.
type TLSConfig struct {
	CAFile             string `json:"ca_file,omitempty"`     // PEM; default: the system's
	ServerName         string `json:"server_name,omitempty"` // default: the URL's host
	CertFile           string `json:"cert_file,omitempty"`   // client certificate, PEM
	KeyFile            string `json:"key_file,omitempty"`
	InsecureSkipVerify bool   `json:"insecure_skip_verify,omitempty"`
}

// Defaults of HookConfig.
const (
	DefaultPermits   = 4
	DefaultFreshWait = time.Second
	DefaultTimeout   = 60 * time.Second
	DefaultTries     = 5
	DefaultTryFor    = 10 * time.Minute
)

// Validate reports everything that is wrong. It touches no file and no
// network.
func (c *HookConfig) Validate() error {
	var errs []error
	bad := func(format string, a ...any) {
		errs = append(errs, fmt.Errorf("spool: hook %q: "+format, append([]any{c.Name}, a...)...))
	}
	if c.Name == "" || len(c.Name) > factBound {
		bad("the name is empty or over %d bytes", factBound)
	}
	if u, err := url.Parse(c.Deliver); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		bad("deliver is not an http or https URL") // the URL may hold a secret
	} else if u.User != nil || u.Fragment != "" {
		bad("deliver must not hold a user or a fragment; use restore for credentials")
	}
	switch c.Keep {
	case "", KeepOff, KeepOverflow, KeepAlways:
	default:
		bad("keep %q is not off, overflow or always", c.Keep)
	}
	if c.Permits < 0 || c.Permits > 64 {
		bad("permits %d is not between 1 and 64", c.Permits)
	}
	if c.Tries < 0 || c.Tries > 1000 {
		bad("tries %d is not between 1 and 1000", c.Tries)
	}
	if c.FreshWait < 0 || c.Timeout < 0 || c.TryFor < 0 {
		bad("fresh_wait, timeout and try_for must not be negative")
	}
	for code, v := range c.Status {
		if !ValidStatus(code, v) {
			bad("status %q %q: want a code or class like 404 or 5xx, and done, again or never", code, v)
		}
	}
	if t := c.TLS; t != nil && (t.CertFile == "") != (t.KeyFile == "") {
		bad("tls needs cert_file and key_file together")
	}
	return errors.Join(errs...)
}

func (c *HookConfig) permits() int { return orDefault(c.Permits, DefaultPermits) }
func (c *HookConfig) timeout() time.Duration {
	return orDefault(time.Duration(c.Timeout), DefaultTimeout)
}
func (c *HookConfig) freshWait() time.Duration {
	return orDefault(time.Duration(c.FreshWait), DefaultFreshWait)
}
func (c *HookConfig) keep() Keep { return orDefault(c.Keep, KeepOverflow) }
func (c *HookConfig) limits() Limits {
	return Limits{orDefault(c.Tries, DefaultTries), orDefault(time.Duration(c.TryFor), DefaultTryFor)}
}
