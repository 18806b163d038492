package cases

import (
	"bytes"
	"encoding/json"
)

// Expect is what must be seen. Everything is optional; nothing at all is an
// error, because such a case could not fail.
type Expect struct {
	Responses       map[string]ResponseExpect  `json:"responses"`
	Upstream        map[string]UpstreamExpect  `json:"upstream"`
	Metrics         []MetricExpect             `json:"metrics"`
	Limits          *LimitsExpect              `json:"limits"`
	Log             *LogExpect                 `json:"log"`
	Config          map[string]ConfigExpect    `json:"config"`
	Admin           map[string]json.RawMessage `json:"admin"`
	ClassesAsListed bool                       `json:"classes_as_listed"`
}

// ResponseExpect is about all exchanges of one step.
type ResponseExpect struct {
	Status             Ints                    `json:"status"`
	StatusesAllIn      Ints                    `json:"statuses_all_in"`
	From               string                  `json:"from"`
	Counts             map[string]Range        `json:"counts"`
	OtherStatusMax     *float64                `json:"other_status_max"`
	Header             map[string]HeaderExpect `json:"header"`
	RefusedHeader      map[string]HeaderExpect `json:"refused_header"`
	RefusedStatus      Ints                    `json:"refused_status"`
	RefusedContentType string                  `json:"refused_content_type"`
	BodyReadMax        *float64                `json:"body_read_max"`
	BodyMaxBytes       *float64                `json:"body_max_bytes"`
	BodyContains       Strings                 `json:"body_contains"`
	BodyBytes          Range                   `json:"body_bytes"`
	Complete           *bool                   `json:"complete"`
	WithinMS           *float64                `json:"within_ms"`
	Class              string                  `json:"class"`
	ClosedBy           string                  `json:"closed_by"`
	Trailers           map[string]string       `json:"trailers"`
	Informational      Ints                    `json:"informational"`
	FirstEventWithinMS *float64                `json:"first_event_within_ms"`
	FirstByteWithinMS  *float64                `json:"first_byte_within_ms"`

	// WebSocket.
	Upgraded       *float64 `json:"upgraded"`
	Alive          *float64 `json:"alive"`
	Echo           *bool    `json:"echo"`
	GatewayRefused Range    `json:"gateway_refused"`

	// git.
	Exit              Ints    `json:"exit"`
	StderrContains    Strings `json:"stderr_contains"`
	StderrNotContains Strings `json:"stderr_not_contains"`

	Note string `json:"note"`
}

// HeaderExpect is about one header field.
type HeaderExpect struct {
	Int            bool     `json:"int"`
	Min            *float64 `json:"min"`
	Max            *float64 `json:"max"`
	Equals         *string  `json:"equals"`
	Prefix         *string  `json:"prefix"`
	Contains       *string  `json:"contains"`
	EqualsUpstream bool     `json:"equals_upstream"`
	Absent         bool     `json:"absent"`
}

// UpstreamExpect is about what one upstream has seen.
type UpstreamExpect struct {
	PeakConcurrencyMax   *float64         `json:"peak_concurrency_max"`
	BodySHAEqual         *bool            `json:"body_sha_equal"`
	BodyBytes            map[string]Range `json:"body_bytes"`
	HeadersEqual         []string         `json:"headers_equal"`
	Seen                 json.RawMessage  `json:"seen"`
	Deliveries           json.RawMessage  `json:"deliveries"`
	Delivered            map[string]Range `json:"delivered"`
	Order                json.RawMessage  `json:"order"`
	MaxDeliveriesEach    *float64         `json:"max_deliveries_each"`
	Every202             *bool            `json:"every_202_delivered_at_least_once"`
	PathAsSentOrRejected *bool            `json:"path_as_sent_or_rejected"`
	WithinMS             *float64         `json:"within_ms"`
	Note                 string           `json:"note"`
}

// MetricExpect is about one number of the gateway.
type MetricExpect struct {
	Name      string   `json:"name"`
	Class     string   `json:"class"`
	Bucket    string   `json:"bucket"`
	Flow      string   `json:"flow"`
	During    string   `json:"during"`
	At        string   `json:"at"`
	Prefix    string   `json:"prefix"`
	Min       *float64 `json:"min"`
	Max       *float64 `json:"max"`
	Eq        *float64 `json:"eq"`
	MaxGrowth *float64 `json:"max_growth"`
	Exposed   bool     `json:"exposed"`
}

// LimitsExpect bounds resources.
type LimitsExpect struct {
	RSSGrowthMaxMiB       *float64 `json:"rss_growth_max_mib"`
	DiskGrowthMaxMiB      *float64 `json:"disk_growth_max_mib"`
	BytesReadOnRefusalMax *float64 `json:"bytes_read_on_refusal_max"`
}

// LogExpect is about what was written; Scope names the places that are
// searched, empty is the whole log.
type LogExpect struct {
	MustContain    []LogLine `json:"must_contain"`
	MustNotContain []string  `json:"must_not_contain"`
	Scope          Strings   `json:"scope"`
}

// LogLine is one expected line: a piece of text, or an event with a field.
type LogLine struct {
	Text  string
	Event string `json:"event"`
	Field string `json:"field"`
	Value string `json:"value"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *LogLine) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, &l.Text) == nil {
		return nil
	}
	type plain LogLine
	var p plain
	err := strict(raw, &p)
	*l = LogLine(p)
	return err
}

// ConfigExpect is about a validate_config step.
type ConfigExpect struct {
	RejectedOrWarns string  `json:"rejected_or_warns"`
	Rejected        *bool   `json:"rejected"`
	Accepted        *bool   `json:"accepted"`
	Warns           string  `json:"warns"`
	Each            string  `json:"each"`
	Contains        Strings `json:"contains"`
}

// AdminExpect is about the answer of an admin step.
type AdminExpect struct {
	Fields   []string          `json:"fields"`
	Contains Strings           `json:"contains"`
	Equals   map[string]string `json:"equals"`
}

// strict decodes JSON and refuses keys that v does not have.
func strict(raw []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}
