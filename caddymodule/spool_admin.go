package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-admission/gateway/admission/spool"
	"github.com/caddy-admission/gateway/internal/adminapi"
)

// filterOf reads which deliveries a question is about.
func filterOf(q url.Values) (f spool.Filter, err error) {
	f = spool.Filter{Hook: q.Get("hook"), Repository: q.Get("repository"), State: q.Get("state")}
	if f.State != "" && f.State != "due" && f.State != "dead" {
		return f, badRequest("state: found %q; allowed: due or dead", f.State)
	}
	if limit := q.Get("limit"); limit != "" {
		if f.Limit, err = strconv.Atoi(limit); err != nil || f.Limit < 1 {
			return f, badRequest("limit: found %q; allowed: a whole number, at least 1", limit)
		}
	}
	return f, nil
}

func badRequest(format string, args ...any) error {
	return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: fmt.Errorf(format, args...)}
}

// chosen are the open spools that a question is about.
func chosen(pool string) ([]keptSpool, error) {
	var list []keptSpool
	for _, k := range keepers.list() {
		if pool == "" || k.pool == pool {
			list = append(list, k)
		}
	}
	if len(list) == 0 {
		return nil, caddy.APIError{HTTPStatus: http.StatusNotFound, Err: errors.New("no pool of that name keeps deliveries")}
	}
	return list, nil
}

func serveDeliveries(w http.ResponseWriter, r *http.Request) error {
	if err := allow(r, http.MethodGet); err != nil {
		return err
	}
	q := r.URL.Query()
	f, err := filterOf(q)
	if err != nil {
		return err
	}
	list, err := chosen(q.Get("pool"))
	if err != nil && q.Has("pool") {
		return err
	}
	out := adminapi.Deliveries{Deliveries: []adminapi.Kept{}}
	for _, k := range list {
		for _, it := range k.sp.List(f) {
			out.Deliveries = append(out.Deliveries, adminapi.Kept{Pool: k.pool, Item: it})
		}
	}
	return writeJSON(w, out)
}

// serveDelivery shows, drops and replays one delivery.
func serveDelivery(w http.ResponseWriter, r *http.Request) error {
	id, verb, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, adminapi.DeliveriesPath+"/"), "/")
	k, err := keeping(r.URL.Query().Get("pool"), id)
	if err != nil {
		return err
	}
	switch {
	case verb == adminapi.ReplayWord:
		if err := allow(r, http.MethodPost); err != nil {
			return err
		}
		err = k.sp.Replay(r.Context(), id)
	case verb != "":
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: errors.New("no such path")}
	case r.Method == http.MethodDelete:
		err = k.sp.Drop(r.Context(), id)
	default:
		if err := allow(r, http.MethodGet, http.MethodDelete); err != nil {
			return err
		}
		d, err := k.sp.Show(id, r.URL.Query().Has("body"))
		if err != nil {
			return spoolProblem(err)
		}
		return writeJSON(w, adminapi.Delivery{Pool: k.pool, Detail: d})
	}
	if err != nil {
		return spoolProblem(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// keeping finds the spool that keeps a delivery.
func keeping(pool, id string) (keptSpool, error) {
	list, err := chosen(pool)
	if err != nil {
		return keptSpool{}, err
	}
	if len(list) > 1 {
		return keptSpool{}, badRequest("several pools keep deliveries; say which with pool")
	}
	return list[0], nil
}

// spoolProblem gives an error of the spool its status.
func spoolProblem(err error) error {
	status := http.StatusInternalServerError
	switch {
	case errors.Is(err, spool.ErrNotFound):
		status = http.StatusNotFound
	case errors.Is(err, spool.ErrExpired), errors.Is(err, spool.ErrCorrupt), errors.Is(err, spool.ErrNoKey):
		status = http.StatusConflict
	case errors.Is(err, spool.ErrClosed):
		status = http.StatusServiceUnavailable
	}
	return caddy.APIError{HTTPStatus: status, Err: err}
}

func serveExport(w http.ResponseWriter, r *http.Request) error {
	if err := allow(r, http.MethodGet); err != nil {
		return err
	}
	q := r.URL.Query()
	f, err := filterOf(q)
	if err != nil {
		return err
	}
	list, err := chosen(q.Get("pool"))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	var unreadable []error
	for _, k := range list {
		unreadable = append(unreadable, k.sp.Export(w, f))
	}
	if err := errors.Join(unreadable...); err != nil { // the lines before it are sent
		return json.NewEncoder(w).Encode(exportError{err.Error()})
	}
	return nil
}

// exportError is the last line of an export that could not read everything.
type exportError struct {
	Error string `json:"error"`
}

func serveRefused(w http.ResponseWriter, r *http.Request) error {
	if err := allow(r, http.MethodGet); err != nil {
		return err
	}
	return writeJSON(w, refusedDeliveries(process, r.URL.Query().Get("pool")))
}

// spoolStates are the states of the open spools, by pool.
func spoolStates(s *spools) map[string]*adminapi.Spool {
	out := map[string]*adminapi.Spool{}
	for _, k := range s.list() {
		snap := k.sp.Snapshot()
		out[k.pool] = &adminapi.Spool{
			Dir: k.sp.Dir(), Moving: k.moving, Depth: snap.Due, OldestAge: snap.Oldest, Dead: snap.Dead, Snapshot: snap,
		}
	}
	for pool, dir := range s.closed() {
		out[pool] = &adminapi.Spool{Dir: dir, Snapshot: spool.Snapshot{DiskFailing: true}}
	}
	return out
}
