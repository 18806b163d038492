package gate

import "context"

// Decision is what the gate found out about one request, for placeholders and
// access logs. Fields are empty until known. Repository is a caller-chosen
// value: it may be logged, never used as a metric label. A Decision belongs to
// the goroutine that serves the request.
type Decision struct {
	Class      string
	Outcome    string
	Reason     string
	Repository string
}

type decisionKey struct{}

// NewContext returns a context that carries d; Serve fills it in.
func NewContext(ctx context.Context, d *Decision) context.Context {
	return context.WithValue(ctx, decisionKey{}, d)
}

// DecisionFrom returns the Decision of ctx, or a throw-away one.
func DecisionFrom(ctx context.Context) *Decision {
	if d, ok := ctx.Value(decisionKey{}).(*Decision); ok {
		return d
	}
	return &Decision{}
}
