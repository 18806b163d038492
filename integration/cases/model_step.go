package cases

import "encoding/json"

// Step is one thing that happens. Which fields are allowed depends on Op; see
// stepFields.
type Step struct {
	Op         string  `json:"op"`
	Name       string  `json:"name"`
	Background bool    `json:"background"`
	AtMS       float64 `json:"at_ms"`

	// Repetition.
	N           int     `json:"n"`
	Concurrency int     `json:"concurrency"`
	RatePerS    float64 `json:"rate_per_s"`
	GapMS       float64 `json:"gap_ms"`
	OverMS      float64 `json:"over_ms"`

	// A request.
	Method          string            `json:"method"`
	Path            string            `json:"path"`
	PathEach        []string          `json:"path_each"`
	Headers         Headers           `json:"headers"`
	RawHeaders      Headers           `json:"raw_headers"`
	HeadersEach     []Headers         `json:"headers_each"`
	HeadersEachUser json.RawMessage   `json:"headers_each_user"`
	Form            map[string]string `json:"form"`
	Body            *Body             `json:"body"`
	Proto           string            `json:"proto"`
	OneConnection   bool              `json:"one_connection"`
	ClientReadBPS   float64           `json:"client_read_bps"`
	ClientRead      string            `json:"client_read"`
	ClientPauseMS   float64           `json:"client_pause_ms"`
	Client          string            `json:"client"`
	Then            string            `json:"then"`
	From            string            `json:"from"`
	FromEach        string            `json:"from_each"`
	Peer            string            `json:"peer"`
	Proven          bool              `json:"proven"`
	Upstream        string            `json:"upstream"`

	// Other kinds of steps.
	Cmd          json.RawMessage     `json:"cmd"`
	RepoWithBlob int64               `json:"repo_with_blob"`
	ThenSend     string              `json:"then_send"`
	Data         Strings             `json:"data"`
	Hex          string              `json:"hex"`
	Names        Strings             `json:"names"`
	How          string              `json:"how"`
	Behaviour    string              `json:"behaviour"`
	Change       json.RawMessage     `json:"change"`
	Steps        []Step              `json:"steps"`
	Cases        [][]string          `json:"cases"`
	Each         string              `json:"each"`
	Of           string              `json:"of"`
	MS           float64             `json:"ms"`
	Frames       int                 `json:"frames"`
	File         string              `json:"file"`
	Text         string              `json:"text"`
	Lines        []string            `json:"lines"`
	Bytes        string              `json:"bytes"`
	Streams      int                 `json:"streams"`
	Connections  int                 `json:"connections"`
	EarlyData    *bool               `json:"early_data"`
	What         string              `json:"what"`
	Config       json.RawMessage     `json:"config"`
	Fields       map[string]struct{} `json:"-"` // the keys that were written
}

// Body is what a request carries.
type Body struct {
	Bytes    *int64          `json:"bytes"`
	Fill     string          `json:"fill"`
	Raw      *string         `json:"raw"`
	Chunked  bool            `json:"chunked"`
	RateBPS  float64         `json:"rate_bps"`
	Then     string          `json:"then"`
	JSONRepo string          `json:"json_repo"`
	Seq      json.RawMessage `json:"seq"`
}

func fields(groups ...[]string) map[string]bool {
	out := map[string]bool{"op": true, "name": true, "at_ms": true, "background": true}
	for _, g := range groups {
		for _, f := range g {
			out[f] = true
		}
	}
	return out
}

var (
	repeatFields = []string{"n", "concurrency", "rate_per_s", "gap_ms", "over_ms"}
	originFields = []string{"from", "from_each", "peer"}
	headerFields = []string{"path", "path_each", "headers", "raw_headers", "headers_each", "headers_each_user", "proto", "client"}
	bodyFields   = []string{"method", "form", "body", "one_connection", "client_read_bps", "client_read", "client_pause_ms", "then", "proven", "upstream"}
)

// stepFields lists the fields each operation reads. A field outside its list
// is an error, because the step would not do what its author meant.
var stepFields = map[string]map[string]bool{
	"req":                   fields(repeatFields, originFields, headerFields, bodyFields),
	"obey_retry_after":      fields(repeatFields, originFields, headerFields, bodyFields, []string{"of"}),
	"git":                   fields(repeatFields, []string{"cmd", "repo_with_blob", "headers", "from"}),
	"ws":                    fields(repeatFields, originFields, headerFields, []string{"then_send", "upstream", "proven"}),
	"ws_send":               fields([]string{"names", "data", "n"}),
	"raw":                   fields(repeatFields, originFields, []string{"data", "text", "lines", "bytes", "hex", "then", "gap_ms", "upstream", "proto"}),
	"h2_reset_flood":        fields(repeatFields, originFields, headerFields, []string{"method", "frames", "upstream", "streams", "connections"}),
	"h2_continuation_flood": fields(repeatFields, originFields, headerFields, []string{"method", "frames", "upstream", "streams", "connections"}),
	"h3_resume":             fields(repeatFields, headerFields, []string{"method", "form", "body", "upstream", "from", "early_data"}),
	"loop":                  fields([]string{"n", "steps"}),
	"release":               fields([]string{"names"}),
	"cancel":                fields([]string{"names", "how"}),
	"upstream":              fields([]string{"behaviour"}),
	"reload":                fields([]string{"change", "n", "gap_ms"}),
	"kill9":                 fields(),
	"start":                 fields([]string{"change"}),
	"corrupt_state":         fields([]string{"file", "what", "how"}),
	"disk_full":             fields(),
	"disk_free":             fields(),
	"classify":              fields([]string{"cases"}),
	"validate_config":       fields([]string{"each", "change", "config"}),
	"admin":                 fields([]string{"cmd", "of"}),
	"scrape":                fields(),
	"wait":                  fields([]string{"ms"}),
}
