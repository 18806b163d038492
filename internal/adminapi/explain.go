package adminapi

import "net/http"

// ExplainRequest describes a request whose treatment is asked for. Nothing of
// it is sent to an upstream, counted or remembered.
type ExplainRequest struct {
	Method string      `json:"method"`
	URL    string      `json:"url"` // absolute; scheme and port choose the server
	Header http.Header `json:"header,omitempty"`
	// From is the address of the connection's peer. Default: 192.0.2.1.
	From string `json:"from,omitempty"`
	// Proven asks what happens once the credential is proven.
	Proven bool `json:"proven,omitempty"`
}

// Explanation says what happens to a request and why. It repeats no header.
type Explanation struct {
	// Server and Site say where the request lands; Reachable whether an
	// admission handler stands in its way; AnsweredBy which handler answers.
	Server     string `json:"server"`
	Site       string `json:"site"`
	Reachable  bool   `json:"reachable"`
	AnsweredBy string `json:"answered_by"`

	Pool       string `json:"pool"`
	Class      string `json:"class"`
	Kind       string `json:"kind"`
	Repository string `json:"repository,omitempty"`
	// Refused is the status of a refusal that does not depend on load, 0 for
	// none.
	Refused int `json:"refused,omitempty"`

	Caller Caller   `json:"caller"`
	Budget *Budget  `json:"budget"`
	Why    []string `json:"why"`
}

// Caller is whom the request counts for.
type Caller struct {
	Address string `json:"address"`
	// Counts is false where several callers share the address and cannot be
	// told apart.
	Counts bool   `json:"counts"`
	Prefix string `json:"prefix"`
}

// Budget is what limits the request's class; numbers as in Class.
type Budget struct {
	Reserve      int            `json:"reserve"`
	Max          int            `json:"max"`
	InUse        int            `json:"in_use"`
	Waiting      int            `json:"waiting"`
	CallerMax    map[string]int `json:"caller_max"`
	Wait         string         `json:"wait"`
	Deadline     string         `json:"deadline"`
	Bucket       string         `json:"bucket"`
	Bytes        string         `json:"bytes"`
	CallerBucket string         `json:"caller_bucket"`
	DryRun       bool           `json:"dry_run"`
}
