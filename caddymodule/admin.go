package caddymodule

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/gate"
	"github.com/caddy-admission/gateway/internal/adminapi"
)

func init() {
	caddy.RegisterModule(Admin{})
}

// Admin serves the live state on Caddy's admin endpoint. It holds nothing:
// Caddy provisions it before the apps of its configuration, so everything is
// looked up when a request comes.
type Admin struct{}

// CaddyModule implements caddy.Module.
func (Admin) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.admission", New: func() caddy.Module { return new(Admin) }}
}

// Routes implements caddy.AdminRouter.
func (Admin) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{
		{Pattern: adminapi.StatePath, Handler: caddy.AdminHandlerFunc(serveState)},
		{Pattern: adminapi.LimitsPath, Handler: caddy.AdminHandlerFunc(serveLimits)},
		{Pattern: adminapi.ExplainPath, Handler: caddy.AdminHandlerFunc(serveExplain)},
		{Pattern: adminapi.DeliveriesPath, Handler: caddy.AdminHandlerFunc(serveDeliveries)},
		{Pattern: adminapi.DeliveriesPath + "/", Handler: caddy.AdminHandlerFunc(serveDelivery)},
		{Pattern: adminapi.ExportPath, Handler: caddy.AdminHandlerFunc(serveExport)},
		{Pattern: adminapi.RefusedPath, Handler: caddy.AdminHandlerFunc(serveRefused)},
	}
}

func serveState(w http.ResponseWriter, r *http.Request) error {
	if err := allow(r, http.MethodGet, http.MethodHead); err != nil {
		return err
	}
	return writeJSON(w, currentState(process))
}

// allow refuses other methods.
func allow(r *http.Request, methods ...string) error {
	if slices.Contains(methods, r.Method) {
		return nil
	}
	return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: fmt.Errorf("allowed: %s", strings.Join(methods, ", "))}
}

// explainBodyMax bounds a question, in bytes.
const explainBodyMax = 64 << 10

// serveExplain answers for the running configuration.
func serveExplain(w http.ResponseWriter, r *http.Request) error {
	if err := allow(r, http.MethodPost); err != nil {
		return err
	}
	var q adminapi.ExplainRequest
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, explainBodyMax))
	body.DisallowUnknownFields()
	if err := body.Decode(&q); err != nil {
		return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: err}
	}
	x, err := explain(caddy.ActiveContext(), q)
	if err != nil {
		return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: err}
	}
	return writeJSON(w, x)
}

func writeJSON(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	return json.NewEncoder(w).Encode(v)
}

// currentState copies the state of every pool.
func currentState(r *registry) adminapi.State {
	out := adminapi.State{Pools: map[string]adminapi.Pool{}}
	spools := spoolStates(keepers)
	for _, pool := range r.list() {
		policy := pool.state.Controller.Policy()
		s, ingress := pool.state.Controller.Snapshot(), pool.state.Ingress.Snapshot()
		s.Classes[admission.LoginStart].Bucket = level(ingress.Starts, policy, admission.LoginStart)
		s.Classes[admission.LoginCallback].Bucket = level(ingress.Callbacks, policy, admission.LoginCallback)
		p := adminapi.Pool{
			Active: pool.active, LimitsChanged: pool.changed,
			Total: adminapi.Total{
				Max: s.Total, InUse: s.InUse, Reserved: policy.Reserved(),
				Shared: s.Rest, SharedUsed: s.SharedUsed,
			},
			Classes:  map[string]adminapi.Class{},
			Callers:  adminapi.Callers{Tracked: s.Callers.Tracked, Max: s.Callers.Max, Bytes: s.Callers.Bytes, Overflow: s.Callers.Overflow},
			Identity: pool.state.Identity.Snapshot(),
			Verify:   adminapi.Verify(pool.state.Verified()),
			Ingress:  ingressState(ingress),
			Spool:    spools[pool.name],
			Shares:   policy.Shares().Lines(),

			AbandonedCut: pool.state.AbandonedCut(),
		}
		for class := range admission.NumClasses {
			p.Classes[class.String()] = classState(&s, class)
		}
		out.Pools[pool.name] = p
	}
	return out
}

func ingressState(s gate.IngressSnapshot) adminapi.Ingress {
	hooks := make(map[string]adminapi.Hook, len(s.Streaks))
	for path, n := range s.Streaks {
		hooks[path] = adminapi.Hook{ConsecutiveRefusals: n}
	}
	return adminapi.Ingress{
		Webhooks: s.Webhooks, Limited: s.Limited, Logouts: s.Logouts,
		Senders: s.Senders, Forgers: s.Forgers, LoginStates: s.States, LoginWaiting: s.Waiting,
		Hooks: hooks,
	}
}

func classState(s *admission.Snapshot, class admission.Class) adminapi.Class {
	c := s.Classes[class]
	out := adminapi.Class{
		Reserve: c.Reserve, Max: c.Max, InUse: c.InUse, Waiting: c.Waiting, Abandoned: c.Abandoned,
		SharedUsed: c.SharedUsed, DryRun: c.DryRun, Beyond: c.Beyond,
		Decisions: map[string]uint64{}, Outcomes: map[string]uint64{},
		Hold:   adminapi.Hold{Count: s.Holds[class].Count, Seconds: s.Holds[class].Sum},
		Bucket: bucketState(c.Bucket), Bytes: bucketState(c.Bytes),
	}
	for d := range admission.NumDecisions {
		if n := s.Decisions[class][d]; n > 0 || d == admission.DecisionAdmitted {
			out.Decisions[d.String()] = n
		}
	}
	for o := range admission.NumOutcomes {
		if n := s.Outcomes[class][o]; n > 0 || o == admission.OutcomeCompleted {
			out.Outcomes[o.String()] = n
		}
	}
	return out
}

// level is the level of a budget that the gate keeps, full until first used.
func level(b admission.BucketSnapshot, policy *admission.Policy, class admission.Class) admission.BucketSnapshot {
	if p := policy.Classes[class].Bucket; b.Burst == 0 && p.On() {
		return admission.BucketSnapshot{Burst: p.Burst, Tokens: float64(p.Burst)}
	}
	return b
}

func bucketState(b admission.BucketSnapshot) *adminapi.Bucket {
	if b.Burst == 0 {
		return nil
	}
	return &adminapi.Bucket{Burst: b.Burst, Tokens: b.Tokens}
}

// Interface guard.
var _ caddy.AdminRouter = Admin{}
