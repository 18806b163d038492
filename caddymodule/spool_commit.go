package caddymodule

import (
	"context"
	"net/http"

	"github.com/caddy-admission/gateway/admission/gate"
	"github.com/caddy-admission/gateway/admission/spool"
)

// committer hands the verified deliveries of one hook to its pool's spool.
type committer struct {
	keeper  *keeper
	hook    string
	mode    spool.Keep
	started <-chan struct{} // closed when the configuration is in force
}

// Commit implements gate.Committer. A delivery that comes before its
// configuration has started waits: Caddy starts apps in random order.
func (c *committer) Commit(ctx context.Context, d *gate.VerifiedDelivery) (gate.CommitAnswer, error) {
	select {
	case <-c.started:
	case <-ctx.Done():
		return gate.CommitAnswer{}, context.Cause(ctx)
	}
	a, err := c.keeper.accept(ctx, c.hook, c.mode, &spool.Delivery{
		Provider: d.Profile, ID: d.ID, Event: d.Event, Repository: d.Repository,
		Query: d.Query, Header: d.Header, Body: d.Body, Received: d.Received, NotAfter: d.Expires,
	})
	if err != nil {
		return gate.CommitAnswer{}, err
	}
	h := http.Header{}
	if a.ContentType != "" {
		h.Set("Content-Type", a.ContentType)
	}
	return gate.CommitAnswer{Status: a.Status, Header: h, Body: a.Body, Kept: a.Kept}, nil
}

// Interface guard.
var _ gate.Committer = (*committer)(nil)
