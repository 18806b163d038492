package admission

import (
	"encoding/json"
	"fmt"
	"time"
)

// Config is what the operator writes for one pool group. A nil pointer or a
// zero number means the default where zero could never be meant. It becomes
// active only through Compile.
type Config struct {
	// Total is the number of git requests the upstream serves at once.
	// Default: 128.
	Total int `json:"total,omitempty"`
	// AllowStarvation lets a configuration load in which discovery, candidate
	// or push could be left without any place. Default: false.
	AllowStarvation bool `json:"allow_starvation,omitempty"`
	// UpstreamWorkers is what the upstream can really serve at once; when all
	// caps together exceed it, loading warns. Default: not checked.
	UpstreamWorkers int `json:"upstream_workers,omitempty"`
	// CallersMax bounds the caller table. When it is full of callers that may
	// not be forgotten, newcomers share one overflow budget. Default: 1048576.
	CallersMax int `json:"callers_max,omitempty"`
	// WaitOff turns waiting off for every class that writes no wait of its own.
	// Default: false.
	WaitOff bool `json:"wait_off,omitempty"`
	// DryRun makes every class decide and count without refusing or delaying.
	// Default: false.
	DryRun bool `json:"dry_run,omitempty"`
	// Classes holds what differs from the defaults, by class name.
	Classes map[string]*ClassConfig `json:"classes,omitempty"`
}

// ClassConfig is what the operator writes for one class.
type ClassConfig struct {
	// Reserve is the part of the total no other class can take. Git classes
	// only. Default: scaled from the total.
	Reserve *int `json:"reserve,omitempty"`
	// Max is the most the class may hold; 0 refuses the class altogether.
	// Default: scaled from the total for git classes, else the class's own.
	Max *int `json:"max,omitempty"`
	// CallerMax caps one caller: per credential in push and read, per address
	// in every other class. 0 means no cap.
	CallerMax *int `json:"caller_max,omitempty"`
	// AddressMax caps one address in push and read, the only classes whose
	// CallerMax counts by something else. 0 means no cap.
	AddressMax *int `json:"address_max,omitempty"`
	// RepoMax caps one canonical repository. Default: no cap.
	RepoMax *int `json:"repo_max,omitempty"`
	// Clones caps the requests that cost the upstream a clone's work: clones,
	// shallow clones, archives and what could not be told. Default: no cap.
	Clones *int `json:"clones,omitempty"`
	// RepoClones is the same cap for one canonical repository. Default: no cap.
	RepoClones *int `json:"repo_clones,omitempty"`
	// CustomMax caps by placeholders, at most four.
	CustomMax []CustomMax `json:"custom_max,omitempty"`
	// Wait bounds the queue; size 0 turns it off.
	Wait *WaitConfig `json:"wait,omitempty"`
	// Deadline ends a request; 0 means none.
	Deadline *Duration `json:"deadline,omitempty"`
	// Stall ends a request whose client neither takes nor gives anything for this
	// long while it is waited for; 0 means never.
	Stall *Duration `json:"stall,omitempty"`
	// BodyIdle is how long a request body may bring nothing. Default: 10s for
	// bodies read before the permit, 1s for webhooks and logouts, else Stall.
	BodyIdle *Duration `json:"body_idle,omitempty"`
	// MinRate is how many bytes per second a client moves at least, on average
	// while it is waited for; 0 means any. Default: 64 KiB/s for the bodies of
	// webhooks and logouts, 4 KiB/s for bodies read before the permit, else 0.
	MinRate *int64 `json:"min_rate,omitempty"`
	// Bucket limits how often the whole class is admitted.
	Bucket *BucketConfig `json:"bucket,omitempty"`
	// Bytes limits the declared body bytes of the whole class.
	Bytes *BucketConfig `json:"bytes,omitempty"`
	// CallerBucket limits how often one address is admitted.
	CallerBucket *BucketConfig `json:"caller_bucket,omitempty"`
	// DryRun makes this class decide and count without refusing or delaying.
	DryRun bool `json:"dry_run,omitempty"`
}

// CustomMax caps the permits that share one value of a placeholder.
type CustomMax struct {
	Max int    `json:"max"`
	By  string `json:"by"`
}

// WaitConfig bounds the wait of a class.
type WaitConfig struct {
	// Size is the most requests that wait at once; 0 turns waiting off.
	Size int `json:"size"`
	// Max is the longest one request waits.
	Max Duration `json:"max,omitempty"`
}

// BucketConfig is a token bucket. It starts full.
type BucketConfig struct {
	// Burst is the size in tokens (requests or bytes).
	Burst int64 `json:"burst"`
	// PerSecond is the refill; it may be a fraction.
	PerSecond float64 `json:"per_second"`
}

// Duration is a time span written as "60s" or as integer nanoseconds.
type Duration time.Duration

// UnmarshalJSON accepts a duration string or integer nanoseconds.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		v, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("duration %q: write it like 60s or 2h", text)
		}
		*d = Duration(v)
		return nil
	}
	var n int64
	if err := json.Unmarshal(b, &n); err != nil {
		return fmt.Errorf("duration %s: write it like \"60s\" or as nanoseconds", b)
	}
	*d = Duration(n)
	return nil
}

// MarshalJSON writes the duration string.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }
