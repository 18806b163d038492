package caddymodule

import (
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/spool"
)

// Spool is the directory where verified deliveries are kept until their
// receiver took them. Each pool needs a directory of its own.
type Spool struct {
	// Path is absolute; the directory is made when missing.
	Path string `json:"path"`
	// MaxBytes bounds everything kept, dead deliveries included. Default: 2 GiB.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// MaxAge sets a delivery aside that could not be delivered for so long, and
	// removes it as long after that. Default: 72h.
	MaxAge admission.Duration `json:"max_age,omitempty"`
	// MaxItems bounds the deliveries kept, dead ones included. Default: 100000.
	MaxItems int `json:"max_items,omitempty"`
	// RepositoryShare is the part of what is free that one repository can
	// take. Default: 0.9.
	RepositoryShare float64 `json:"repository_share,omitempty"`
	// KeyFile holds the key that seals credentials; made when missing.
	// Default: the file "key" in the directory.
	KeyFile string `json:"key_file,omitempty"`
}

// DeliverOptions says how the deliveries of one hook go to its receiver.
type DeliverOptions struct {
	// Permits is how many attempts run at once, fresh and replayed, 1 to 64.
	// Default: 4.
	Permits int `json:"permits,omitempty"`
	// FreshWait is how long a fresh attempt may take before the delivery is
	// kept and acknowledged, with keep overflow. Default: 1s.
	FreshWait admission.Duration `json:"fresh_wait,omitempty"`
	// Timeout is how long one attempt may take. Default: 60s.
	Timeout admission.Duration `json:"timeout,omitempty"`
	// Tries sets a delivery aside as dead after so many failed attempts, 1 to
	// 1000. Default: 5.
	Tries int `json:"tries,omitempty"`
	// TryFor does so this long after the first failure. Default: 10m.
	TryFor admission.Duration `json:"try_for,omitempty"`
	// Status says what a receiver's answer means, done, again or never, by
	// code ("404") or class ("5xx"). Default: 2xx is done; 408, 425, 429 and
	// 5xx but 501 and 505 are again; all others are never.
	Status map[string]string `json:"status,omitempty"`
	// Headers of the sender are kept beside those that senders are known to
	// use; SecretHeaders are kept encrypted.
	Headers       []string `json:"headers,omitempty"`
	SecretHeaders []string `json:"secret_headers,omitempty"`
	// TLS is how the receiver's certificate is checked.
	TLS *spool.TLSConfig `json:"tls,omitempty"`
}

// keep is when the hook's deliveries are kept.
func (h *Hook) keep() spool.Keep {
	switch {
	case h.Deliver == "":
		return spool.KeepOff
	case h.Keep == "":
		return spool.KeepOverflow
	}
	return spool.Keep(h.Keep)
}

func (h *Hook) checkKeep(at string) (problems []admission.Problem) {
	problems = checkURL(at+" deliver", h.Deliver)
	switch spool.Keep(h.Keep) {
	case "", spool.KeepOff:
	case spool.KeepOverflow, spool.KeepAlways:
		if h.Deliver == "" {
			problems = append(problems, problemf(at+" keep", "keep off, or deliver <URL> beside it", "keep %s without deliver", h.Keep))
		}
	default:
		problems = append(problems, problemf(at+" keep", "off, overflow or always", "%q", h.Keep))
	}
	if profile, _ := h.profile(); profile != nil && !profile.NeedsSecret() && h.Deliver != "" {
		problems = append(problems, problemf(at+" deliver", "none: only verified deliveries are kept, and only the receiver can verify this profile's", "deliver with profile %s", h.Profile))
	}
	if o := h.DeliverOptions; o != nil {
		problems = append(problems, o.check(at+" deliver", h.Deliver)...)
	}
	return problems
}

func (o *DeliverOptions) check(at, url string) (problems []admission.Problem) {
	bad := func(word, allowed, found string, args ...any) {
		problems = append(problems, problemf(join(at, word), allowed, found, args...))
	}
	if url == "" {
		bad("", "deliver <URL>", "options without a URL")
	}
	if o.Permits < 0 || o.Permits > maxDeliverPermits {
		bad("permits", countText(1, maxDeliverPermits), "%d", o.Permits)
	}
	if o.Tries < 0 || o.Tries > maxTries {
		bad("tries", countText(1, maxTries), "%d", o.Tries)
	}
	if o.FreshWait < 0 || o.Timeout < 0 || o.TryFor < 0 {
		bad("", "fresh_wait, timeout and try_for above zero", "a negative duration")
	}
	for _, key := range slices.Sorted(maps.Keys(o.Status)) {
		if !spool.ValidStatus(key, spool.Verdict(o.Status[key])) {
			bad("status", statusText, "%q %q", key, o.Status[key])
		}
	}
	if t := o.TLS; t != nil && (t.CertFile == "") != (t.KeyFile == "") {
		bad("tls_client_auth", "<certificate file> <key file>", "one of them")
	}
	return problems
}

// Bounds of DeliverOptions, and the syntax of status for messages.
const (
	maxDeliverPermits = 64
	maxTries          = 1000
	statusText        = "<code or class> done|again|never, for instance 404 again or 5xx never"
)

// checkSpool checks the spool, and that there is one where one is needed.
func (p *Pool) checkSpool() (problems []admission.Problem) {
	s := p.Spool
	if s == nil {
		for _, h := range p.Hooks {
			if h.Deliver != "" {
				problems = append(problems, problemf("webhook "+h.Path+" deliver", "spool <directory> in the same block", "deliver without a spool"))
			}
		}
		return problems
	}
	if !filepath.IsAbs(s.Path) {
		problems = append(problems, problemf("spool", "an absolute path", "%q", s.Path))
	}
	if s.MaxBytes != 0 && s.MaxBytes < minSpoolBytes {
		problems = append(problems, problemf("spool max_bytes", "at least 64KiB", "%d", s.MaxBytes))
	}
	if s.MaxAge != 0 && time.Duration(s.MaxAge) < time.Second {
		problems = append(problems, problemf("spool max_age", "at least 1s", "%s", time.Duration(s.MaxAge)))
	}
	if s.MaxItems < 0 || s.MaxItems > maxSpoolItems {
		problems = append(problems, problemf("spool max_items", countText(1, maxSpoolItems), "%d", s.MaxItems))
	}
	if s.RepositoryShare < 0 || s.RepositoryShare > 1 {
		problems = append(problems, problemf("spool repository_share", shareText, "%g", s.RepositoryShare))
	}
	if s.KeyFile != "" && !filepath.IsAbs(s.KeyFile) {
		problems = append(problems, problemf("spool key_file", "an absolute path", "%q", s.KeyFile))
	}
	return problems
}

// Bounds of Spool.
const (
	minSpoolBytes = 64 << 10
	maxSpoolItems = 10_000_000
	shareText     = "a part above 0 and up to 1, for instance 0.5"
)

func (s *Spool) config() spool.Config {
	return spool.Config{
		Dir: filepath.Clean(s.Path), MaxBytes: s.MaxBytes, MaxAge: spool.Duration(s.MaxAge), MaxCount: s.MaxItems,
		RepositoryShare: s.RepositoryShare, KeyFile: s.KeyFile,
	}
}
