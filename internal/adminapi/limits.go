package adminapi

import "encoding/json"

// LimitsPath is followed by the name of a pool. GET: Limits as they are in
// force. PATCH: a JSON merge patch (RFC 7396) of them, answered like GET; a null
// takes a setting back to its default. DELETE: those of the configuration again.
const LimitsPath = "/admission/limits/"

// Limits are the numbers of one pool that can be changed while it runs.
type Limits struct {
	Pool string `json:"pool"`
	// Changed is true while they differ from the loaded configuration's because
	// somebody changed them here.
	Changed bool `json:"changed"`
	// Limits holds what was written; defaults are left out. It has the fields of
	// a pool's JSON configuration that are numbers: total, classes, webhooks, ….
	Limits json.RawMessage `json:"limits"`
	// Warnings are what the configuration would be warned about.
	Warnings []string `json:"warnings,omitempty"`
}
