package spool

import (
	"maps"
	"time"
)

// counters are process-lifetime. Every label set is closed.
type counters struct {
	kept        uint64
	duplicates  uint64
	revived     uint64
	fresh       map[outcome]uint64
	replayed    map[outcome]uint64
	dead        map[DeadReason]uint64
	dropped     map[DropReason]uint64
	refused     map[string]uint64
	damaged     uint64
	diskErrors  uint64
	diskFailing bool
}

func (c *counters) init() {
	c.fresh, c.replayed = map[outcome]uint64{}, map[outcome]uint64{}
	c.dead, c.dropped, c.refused = map[DeadReason]uint64{}, map[DropReason]uint64{}, map[string]uint64{}
}

// Outcomes lists the labels of Snapshot.Fresh and Snapshot.Replayed.
func Outcomes() []string {
	return []string{string(outcomeDone), string(outcomeAgain), string(outcomeNever), string(outcomeUnreachable)}
}

// Reasons lists the labels of Snapshot.Refused, as Reason gives them.
func Reasons() []string {
	return []string{"spool_full", "disk", "expired", "too_large", "closed", "busy", "gone", "upstream_failed", "other"}
}

// Snapshot is the spool at one moment, for metrics and the state. Counters
// count since Open. Keys of the maps are the closed sets of Outcomes,
// DeadReasons, DropReasons and Reasons; missing ones are 0.
type Snapshot struct {
	Kept       uint64            `json:"kept"`       // deliveries made durable
	Duplicates uint64            `json:"duplicates"` // taken for one that was still due
	Revived    uint64            `json:"revived"`    // dead ones the sender sent again
	Fresh      map[string]uint64 `json:"fresh"`      // first attempts by outcome
	Replayed   map[string]uint64 `json:"replayed"`   // attempts at kept deliveries by outcome
	Died       map[string]uint64 `json:"died"`       // set aside, by reason
	Dropped    map[string]uint64 `json:"dropped"`    // left undelivered, by reason
	Refused    map[string]uint64 `json:"refused"`    // not taken, by reason

	Due         int     `json:"due"`                // deliveries that wait or are attempted
	Dead        int     `json:"dead"`               // set aside
	Oldest      float64 `json:"oldest_age_seconds"` // of what is due
	Bytes       int64   `json:"bytes"`              // of everything kept
	MaxBytes    int64   `json:"max_bytes"`
	MaxCount    int     `json:"max_count"`
	DiskBytes   int64   `json:"disk_bytes"` // of the log files
	Files       int     `json:"files"`
	Damaged     uint64  `json:"damaged"`     // damaged stretches found
	DiskErrors  uint64  `json:"disk_errors"` // failed operations
	DiskFailing bool    `json:"disk_failing"`

	Hooks map[string]HookSnapshot `json:"hooks"` // by configured name
}

// HookSnapshot is one hook.
type HookSnapshot struct {
	Active  bool `json:"active"` // false: the configuration does not name it, nothing is attempted
	Running int  `json:"running"`
	Permits int  `json:"permits"`
	Down    bool `json:"down"`   // the receiver cannot be reached
	Recent  int  `json:"recent"` // repositories due in each lane
	Repair  int  `json:"repair"`
	Later   int  `json:"later"` // repositories whose oldest delivery waits for its next attempt
	Due     int  `json:"due"`   // deliveries
	Dead    int  `json:"dead"`
}

// Snapshot costs one pass over everything kept.
func (s *Spool) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.stats
	snap := Snapshot{
		Kept: c.kept, Duplicates: c.duplicates, Revived: c.revived,
		Fresh: labels(c.fresh), Replayed: labels(c.replayed), Died: labels(c.dead),
		Dropped: labels(c.dropped), Refused: maps.Clone(c.refused),
		Dead: s.deads, Bytes: s.bytes, MaxBytes: s.cfg.maxBytes(), MaxCount: s.cfg.maxCount(),
		Files: len(s.segs), Damaged: c.damaged, DiskErrors: c.diskErrors, DiskFailing: c.diskFailing,
		Hooks: map[string]HookSnapshot{},
	}
	for _, g := range s.segs {
		snap.DiskBytes += g.size
	}
	for name, h := range s.hooks {
		snap.Hooks[name] = h.snapshotLocked()
	}
	s.countLocked(&snap)
	return snap
}

func (s *Spool) countLocked(snap *Snapshot) {
	var oldest int64
	for _, e := range s.entries {
		h := snap.Hooks[e.hook]
		if e.Dead != "" {
			h.Dead++
		} else {
			h.Due++
			snap.Due++
			if oldest == 0 || e.received < oldest {
				oldest = e.received
			}
		}
		snap.Hooks[e.hook] = h
	}
	if oldest != 0 {
		snap.Oldest = max(s.now().Sub(time.Unix(0, oldest)).Seconds(), 0)
	}
}

func (h *Hook) snapshotLocked() HookSnapshot {
	v := HookSnapshot{Active: h.active, Running: h.running, Permits: h.cfg.permits(), Down: !h.down.since.IsZero()}
	v.Recent, v.Repair, v.Later = h.sched.Waiting()
	return v
}

func labels[K ~string](m map[K]uint64) map[string]uint64 {
	out := make(map[string]uint64, len(m))
	for k, n := range m {
		out[string(k)] = n
	}
	return out
}
