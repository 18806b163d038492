package caddymodule

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	httpcaddyfile.RegisterHandlerDirective("admission", parseDirective)
	httpcaddyfile.RegisterDirectiveOrder("admission", httpcaddyfile.Before, "basic_auth")
}

// defaultName is the pool of a directive that names none.
const defaultName = "default"

// poolName is what a name may be: names become metric labels.
var poolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

const poolNameText = "1 to 64 letters, digits, - and _"

// stateKey is where the directives of one Caddyfile meet.
const stateKey = "admission.pools"

// written is the block that defined a name, for comparison with later ones.
type written struct {
	at  position
	raw string
}

// parseDirective reads
//
//	admission [<matcher>] [<name>] [{
//	    total            <n>
//	    wait             on|off
//	    caller           <placeholder> [<IPv4 bits> [<IPv6 bits>]]
//	    forge            gitea|forgejo|gitlab|gogs|cgit
//	    class            <class> { … }
//	    allow_starvation
//	    upstream_workers <n>
//	    callers_max      <n>
//	    refuse_status    <class> 429|503
//	    dry_run
//	    log_callers
//	    … and what recognitionWords and ingressWords say
//	}]
//
// The directive without a block, or with an empty one, shares the pools of its
// name.
func parseDirective(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	h.Next() // the directive's own name
	r := newReader(h.Dispenser)
	r.matcher = matcherFrom(h)
	handler := &Handler{Name: defaultName}
	if args := h.RemainingArgs(); len(args) == 1 && poolName.MatchString(args[0]) {
		handler.Name = args[0]
	} else if len(args) > 0 {
		r.add(r.where[""], problemf("admission", "[<matcher>] [<name>], where a name is "+poolNameText, "%s", quoted(args)))
	}
	pool, opened := r.pool()
	if !opened {
		return handler, joinMistakes(r.mistakes)
	}
	handler.Pool = pool
	_, problems := handler.Pool.compile()
	for _, p := range problems {
		r.add(locate(r.where, p.Path), p)
	}
	if err := joinMistakes(r.mistakes); err != nil {
		return nil, err
	}
	if err := keepOnce(h, handler, r.where["spool"]); err != nil {
		return nil, err
	}
	return handler, defineOnce(h, handler, r.where[""])
}

// spoolKey is where the spools of one Caddyfile meet.
const spoolKey = "admission.spools"

// keepOnce refuses a spool directory that another name has.
func keepOnce(h httpcaddyfile.Helper, handler *Handler, at position) error {
	if handler.Pool.Spool == nil {
		return nil
	}
	dirs, _ := h.State[spoolKey].(map[string]keptAt)
	if dirs == nil {
		dirs = map[string]keptAt{}
		h.State[spoolKey] = dirs
	}
	dir := handler.Pool.Spool.config().Dir
	first, ok := dirs[dir]
	if ok && first.name != handler.Name {
		return fmt.Errorf("%s: spool: found %q, which admission %s has at %s; allowed: a directory of its own for each name", at, dir, first.name, first.at)
	}
	dirs[dir] = keptAt{handler.Name, at}
	return nil
}

// keptAt is the first name that has a spool directory.
type keptAt struct {
	name string
	at   position
}

// defineOnce refuses a second, different block for a name. The same block
// again is harmless.
func defineOnce(h httpcaddyfile.Helper, handler *Handler, at position) error {
	raw, err := json.Marshal(handler.Pool)
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	names, _ := h.State[stateKey].(map[string]written)
	if names == nil {
		names = map[string]written{}
		h.State[stateKey] = names
	}
	first, ok := names[handler.Name]
	if !ok {
		names[handler.Name] = written{at: at, raw: string(raw)}
		return nil
	}
	if first.raw != string(raw) {
		return fmt.Errorf("%s: admission %q: found a block that differs from the one at %s; allowed: one block per name, other sites write admission %s without a block or use another name",
			at, handler.Name, first.at, handler.Name)
	}
	return nil
}
