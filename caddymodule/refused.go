package caddymodule

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/caddy-admission/gateway/admission/gate"
	"github.com/caddy-admission/gateway/admission/spool"
	"github.com/caddy-admission/gateway/internal/adminapi"
)

// noteRefused returns what records the refused deliveries of a pool.
func noteRefused(list *spool.Refusals) func(*gate.RefusedDelivery) {
	return func(d *gate.RefusedDelivery) {
		list.Record(spool.Refused{
			At: d.At, Hook: d.Hook, Provider: d.Profile, Way: wayOf(d), Outcome: d.Outcome.String(), Status: d.Status,
			Verified: d.Verified, Delivery: d.ID, Event: d.Event, Repository: d.Repository,
		})
	}
}

// ways says under which way of the contract an outcome falls.
var ways = map[gate.HookOutcome]spool.Way{
	gate.HookMethod: spool.WayShape, gate.HookLength: spool.WayShape, gate.HookContent: spool.WayShape,
	gate.HookHeader: spool.WayShape, gate.HookForm: spool.WayShape, gate.HookLookalike: spool.WayShape,
	gate.HookSignature: spool.WaySignature, gate.HookCredential: spool.WaySignature, gate.HookMAC: spool.WaySignature,
	gate.HookTimestamp: spool.WayExpired, gate.HookBodyTooLarge: spool.WayTooLarge,
	gate.HookRequests: spool.WayOverload, gate.HookBytes: spool.WayOverload, gate.HookOwnBucket: spool.WayOverload,
	gate.HookSender: spool.WayOverload, gate.HookPermit: spool.WayOverload, gate.HookShutdown: spool.WayOverload,
	gate.HookDisplaced: spool.WayOverload,
	gate.HookSlow:      spool.WayDeadline, gate.HookBodyBroken: spool.WayDeadline, gate.HookDeadline: spool.WayDeadline,
	gate.HookGone:            spool.WayDeadline,
	gate.HookUpstreamRefused: spool.WayRefused,
	gate.HookUpstreamFailed:  spool.WayUpstream, gate.HookPanic: spool.WayUpstream, gate.HookKeepFailed: spool.WaySpoolDown,
}

// keepWays are those of a delivery that could not be kept, by spool.Reason.
var keepWays = map[string]spool.Way{
	"spool_full": spool.WaySpoolFull, "expired": spool.WayExpired, "too_large": spool.WayTooLarge,
	"busy": spool.WayOverload, "gone": spool.WayDeadline, "upstream_failed": spool.WayUpstream,
}

func wayOf(d *gate.RefusedDelivery) spool.Way {
	if d.Status == http.StatusRequestEntityTooLarge {
		return spool.WayTooLarge
	}
	if way, ok := keepWays[spool.Reason(d.Cause)]; ok && d.Outcome == gate.HookKeepFailed {
		return way
	}
	return ways[d.Outcome]
}

// refusedDeliveries lists what the pools of r refused, newest first in a pool.
func refusedDeliveries(r *registry, pool string) adminapi.RefusedDeliveries {
	out := adminapi.RefusedDeliveries{Refused: []adminapi.RefusedDelivery{}, Counts: map[string]uint64{}}
	for _, p := range r.list() {
		if pool != "" && p.name != pool {
			continue
		}
		list, counts := p.refused.List()
		for way, n := range counts {
			out.Counts[string(way)] += n
		}
		for i := range list {
			out.Refused = append(out.Refused, refusedRow(p.name, &list[i]))
		}
	}
	return out
}

func refusedRow(pool string, f *spool.Refused) adminapi.RefusedDelivery {
	row := adminapi.RefusedDelivery{
		At: f.At, Pool: pool, Hook: f.Hook, Provider: f.Provider, Verified: f.Verified, DeliveryID: f.Delivery,
		Event: f.Event, Repository: f.Repository, Reason: string(f.Way), Outcome: f.Outcome, Status: f.Status,
		RecoveredBy: string(f.Recoverer.Who), How: f.Recoverer.How, Within: f.Recoverer.Within, API: f.Recoverer.API,
		SameID: f.Recoverer.SameID, Note: f.Recoverer.Note,
	}
	if f.Repository != "" {
		sum := sha256.Sum256([]byte(f.Repository))
		row.RepositoryHash = hex.EncodeToString(sum[:8])
	}
	return row
}
