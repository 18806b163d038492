package cases

import (
	"encoding/json"
	"fmt"
)

// Case is one report: how the gateway is set up, what happens, what is seen.
type Case struct {
	ID           string          `json:"id"`
	Kind         string          `json:"kind"`
	Source       json.RawMessage `json:"source"`
	Symptom      string          `json:"symptom"`
	Domain       json.RawMessage `json:"domain"`
	RightOutcome string          `json:"right_outcome"`
	Policy       string          `json:"policy"`
	Measured     string          `json:"measured"`
	Setup        Setup           `json:"setup"`
	Steps        []Step          `json:"steps"`
	Expect       Expect          `json:"expect"`

	setup json.RawMessage // as written, for changes at a reload
}

// Setup is the neutral description of the gateway and its surroundings.
type Setup struct {
	Profile   string                `json:"profile"`
	Classes   map[string]ClassSetup `json:"classes"`
	Budgets   map[string]Budget     `json:"budgets"`
	ClientIP  *ClientIP             `json:"client_ip"`
	Webhooks  []WebhookSetup        `json:"webhooks"`
	Upstreams map[string]string     `json:"upstreams"`
	Spool     *SpoolSetup           `json:"spool"`
	Dedupe    *DedupeSetup          `json:"dedupe"`
	Proof     *ProofSetup           `json:"proof"`
	Refusal   *RefusalSetup         `json:"refusal"`
	Exempt    Strings               `json:"exempt"`
	Mount     Strings               `json:"mount"`
	KeysMax   int                   `json:"keys_max"`
	Handlers  json.RawMessage       `json:"handlers"`
	Lease     json.RawMessage       `json:"lease"`
	Server    *ServerSetup          `json:"server"`
	Before    Strings               `json:"handlers_before"`
	Front     *FrontSetup           `json:"front"`
	Proto     Strings               `json:"proto"`
	LogLevel  string                `json:"log_level"`
	Variants  []string              `json:"caddyfile_variants"`
}

// ClassSetup limits one class. A nil pointer is the profile's value.
type ClassSetup struct {
	Permits    *int     `json:"permits"`
	Queue      *int     `json:"queue"`
	MaxWaitMS  *float64 `json:"max_wait_ms"`
	DeadlineMS *float64 `json:"deadline_ms"`
	BodyIdleMS *float64 `json:"body_idle_ms"`
	StallMS    *float64 `json:"stall_ms"`
	MinRateBPS *float64 `json:"min_rate_bps"`
	PerFlow    *int     `json:"per_flow"`
	FlowKey    string   `json:"flow_key"`
	LendTo     Strings  `json:"lend_to"`
}

// Budget is a token bucket; Rate is tokens per second.
type Budget struct {
	Burst            float64 `json:"burst"`
	Rate             float64 `json:"rate"`
	Key              string  `json:"key"`
	UndeclaredCharge float64 `json:"undeclared_charge"`
	Count            string  `json:"count"`
	Action           string  `json:"action"`
}

// ClientIP says who is believed about client addresses.
type ClientIP struct {
	TrustedProxies []string `json:"trusted_proxies"`
	IPv6Prefix     int      `json:"ipv6_prefix"`
}

// WebhookSetup is one hook path.
type WebhookSetup struct {
	Path    string   `json:"path"`
	Scheme  string   `json:"scheme"`
	Secrets []string `json:"secrets"`
	MaxBody int64    `json:"max_body"`
}

// SpoolSetup says what is kept on disk.
type SpoolSetup struct {
	Webhook     bool    `json:"webhook"`
	MaxItems    int     `json:"max_items"`
	MaxBytes    int64   `json:"max_bytes"`
	MaxAgeMS    float64 `json:"max_age_ms"`
	Fsync       *bool   `json:"fsync"`
	Lanes       string  `json:"lanes"`
	Concurrency int     `json:"concurrency"`
}

// UnmarshalJSON implements json.Unmarshaler; true alone keeps deliveries.
func (s *SpoolSetup) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, &s.Webhook) == nil {
		return nil
	}
	type plain SpoolSetup
	var p plain
	err := strict(raw, &p)
	*s = SpoolSetup(p)
	return err
}

// DedupeSetup says what makes two deliveries one.
type DedupeSetup struct {
	Webhook bool    `json:"webhook"`
	Key     string  `json:"key"`
	TTLMS   float64 `json:"ttl_ms"`
}

// UnmarshalJSON implements json.Unmarshaler; true alone switches it on.
func (d *DedupeSetup) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, &d.Webhook) == nil {
		return nil
	}
	type plain DedupeSetup
	p := plain{Webhook: true}
	err := strict(raw, &p)
	*d = DedupeSetup(p)
	return err
}

// ProofSetup is the life of a proven credential.
type ProofSetup struct {
	TTLMS float64 `json:"ttl_ms"`
}

// RefusalSetup changes the status of refusals: one number for every class, or
// numbers by neutral class name, where "git" is every git class and "status"
// every other.
type RefusalSetup struct {
	Status  int
	Classes map[string]int
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *RefusalSetup) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, &r.Status) == nil {
		return nil
	}
	var by map[string]int
	if err := json.Unmarshal(raw, &by); err != nil {
		return err
	}
	r.Classes = map[string]int{}
	for name, status := range by {
		switch {
		case name == "status":
			r.Status = status
		case name == "git":
			for _, class := range gitClasses {
				r.Classes[class] = status
			}
		case productClasses[name] != nil:
			r.Classes[name] = status
		default:
			return fmt.Errorf("refusal: unknown class %q", name)
		}
	}
	return nil
}

// ServerSetup is Caddy around the product.
type ServerSetup struct {
	AccessLog        bool              `json:"access_log"`
	Timeouts         map[string]string `json:"timeouts"`
	StreamCloseDelay string            `json:"stream_close_delay"`
	GracePeriod      string            `json:"grace_period"`
}

// FrontSetup is what else stands before the upstream.
type FrontSetup struct {
	ForwardAuth string `json:"forward_auth"`
}
