package caddymodule

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
	"github.com/caddy-admission/gateway/admission/gate"
)

// Pool is everything that is configured under one name: budgets, and how the
// requests of the sites that use the name are read. The zero value protects a
// git server with the defaults.
type Pool struct {
	admission.Config

	// Caller says what counts as one caller. Default: the client's address,
	// IPv4 by /32 and IPv6 by /64.
	Caller *Caller `json:"caller,omitempty"`

	// Forge names the software behind the gateway: gitea, forgejo, gitlab,
	// gogs or cgit. Default: any git server.
	Forge string `json:"forge,omitempty"`

	// RefuseStatus gives the status of refusals per class, 429 or 503.
	// Default: 503 when shared capacity is exhausted, 429 when the caller's
	// own share is.
	RefuseStatus map[string]int `json:"refuse_status,omitempty"`

	// LogCallers adds the caller's address to the lines about refusals.
	// Default: false.
	LogCallers bool `json:"log_callers,omitempty"`

	Recognition

	// Webhooks is the budget that all hooks share.
	Webhooks *Webhooks `json:"webhooks,omitempty"`
	// Hooks are the paths that take deliveries.
	Hooks []*Hook `json:"hooks,omitempty"`
	// Logouts are the paths of back-channel logout.
	Logouts []*Logout `json:"logouts,omitempty"`
	// LoginStart and LoginCallback are paths; * stands for any characters.
	LoginStart    []string `json:"login_start,omitempty"`
	LoginCallback []string `json:"login_callback,omitempty"`
	// Spool keeps accepted deliveries until they were delivered.
	Spool *Spool `json:"spool,omitempty"`
}

// Caller says what counts as one caller.
type Caller struct {
	// Key is a placeholder whose value is an address. Default: the client IP
	// that Caddy determined.
	Key string `json:"key,omitempty"`
	// IPv4Bits and IPv6Bits are the lengths of the prefixes that count as one
	// caller. Default: 32 and 64.
	IPv4Bits int `json:"ipv4_bits,omitempty"`
	IPv6Bits int `json:"ipv6_bits,omitempty"`
}

// definition is a Pool that was checked, with what follows from it. It is not
// changed once it is shared.
type definition struct {
	pool     *Pool
	policy   *admission.Policy
	profile  classify.Profile
	refuse   [admission.NumClasses]int
	ingress  *gate.IngressConfig // set by load
	spool    *spoolPlan          // set by load; nil: nothing is kept
	rules    []loadedRule        // set by load
	warnings []admission.Problem
}

// profiles are the forges by the name the operator writes.
var profiles = map[string]classify.Profile{
	"gitea":   classify.Gitea,
	"forgejo": classify.Forgejo,
	"gitlab":  classify.GitLab,
	"gogs":    classify.Gogs,
	"cgit":    classify.Cgit,
}

const clientIPPlaceholder = "{http.vars.client_ip}"

// compile checks the whole configuration. The definition is nil when any
// problem is not a warning.
func (p *Pool) compile() (*definition, []admission.Problem) {
	def := &definition{pool: p, profile: classify.Generic}
	config := p.Config
	problems := p.webhookClass(&config)
	policy, more := config.Compile()
	def.policy = policy
	problems = append(problems, more...)
	problems = append(problems, p.checkForge(def)...)
	problems = append(problems, p.checkCaller()...)
	problems = append(problems, p.checkRefuseStatus(def)...)
	problems = append(problems, p.checkCustom()...)
	problems = append(problems, p.checkRecognition(def)...)
	problems = append(problems, p.checkIngress()...)
	for _, problem := range problems {
		if !problem.Warning {
			return nil, problems
		}
	}
	def.warnings = problems
	return def, problems
}

func (p *Pool) checkForge(def *definition) []admission.Problem {
	if p.Forge == "" {
		return nil
	}
	profile, ok := profiles[p.Forge]
	if !ok {
		return []admission.Problem{problemf("forge", oneOf(profiles), "%q", p.Forge)}
	}
	def.profile = profile
	return nil
}

func (p *Pool) checkCaller() (problems []admission.Problem) {
	c := p.Caller
	if c == nil {
		return nil
	}
	if c.Key != "" && !isPlaceholder(c.Key) {
		problems = append(problems, problemf("caller", "a placeholder whose value is an address, for instance {client_ip}", "%q", c.Key))
	}
	if c.IPv4Bits != 0 && (c.IPv4Bits < 8 || c.IPv4Bits > 32) {
		problems = append(problems, problemf("caller", "an IPv4 prefix length from 8 to 32", "%d", c.IPv4Bits))
	}
	if c.IPv6Bits != 0 && (c.IPv6Bits < 16 || c.IPv6Bits > 128) {
		problems = append(problems, problemf("caller", "an IPv6 prefix length from 16 to 128", "%d", c.IPv6Bits))
	}
	return problems
}

func (p *Pool) checkRefuseStatus(def *definition) (problems []admission.Problem) {
	for _, name := range slices.Sorted(maps.Keys(p.RefuseStatus)) {
		status := p.RefuseStatus[name]
		class, ok := admission.ParseClass(name)
		switch {
		case !ok:
			problems = append(problems, problemf("refuse_status", classNames(), "class %q", name))
		case status != 429 && status != 503:
			problems = append(problems, problemf(join("refuse_status", name), "429 or 503", "%d", status))
		case class == admission.LFS && status != 429:
			problems = append(problems, problemf(join("refuse_status", name), "429, because git-lfs gives up on a 503", "%d", status))
		default:
			def.refuse[class] = status
		}
	}
	return problems
}

func (p *Pool) checkCustom() (problems []admission.Problem) {
	for _, name := range slices.Sorted(maps.Keys(p.Classes)) {
		if p.Classes[name] == nil {
			continue
		}
		for _, custom := range p.Classes[name].CustomMax {
			if !isPlaceholder(custom.By) {
				problems = append(problems, problemf("class "+name+" caller_max", "a placeholder, for instance {http.request.header.X-Team}", "by %q", custom.By))
			}
		}
	}
	return problems
}

func isPlaceholder(s string) bool {
	open := strings.IndexByte(s, '{')
	return open >= 0 && strings.IndexByte(s[open:], '}') > 1
}

func classNames() string {
	names := make([]string, 0, admission.NumClasses)
	for class := range admission.NumClasses {
		names = append(names, class.String())
	}
	return fmt.Sprintf("one of %s", strings.Join(names, ", "))
}
