package caddymodule

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/caddy-admission/gateway/admission/spool"
)

// keeper is where the deliveries of one pool are kept. It outlives the
// configurations that name the pool, as the pool's state does, so that a
// reload goes on with the open spool or moves what it holds.
type keeper struct {
	pool string

	// Guarded by the registry.
	refs    map[*generation]struct{}
	live    []*spoolUse        // started and not stopped, oldest first
	release func() error       // gives sp back; nil without one
	cancel  context.CancelFunc // ends the mover; nil when none runs
	ended   chan struct{}      // closed when the mover has ended
	resting bool               // nobody tries, because it moves

	mu     sync.RWMutex // protects what follows; a delivery takes it for a moment
	sp     *spool.Spool // nil: nothing is kept
	moving bool         // deliveries are kept and not tried
	round  *sync.WaitGroup
}

func newKeeper(pool string) *keeper {
	return &keeper{pool: pool, refs: map[*generation]struct{}{}, round: new(sync.WaitGroup)}
}

// accept takes one verified delivery. While the spool moves it is kept only.
func (k *keeper) accept(ctx context.Context, hook string, mode spool.Keep, d *spool.Delivery) (spool.Answer, error) {
	sp, moving, leave := k.enter()
	defer leave()
	switch {
	case sp == nil:
		return spool.Answer{}, spool.ErrClosed
	case !moving:
		return sp.Accept(ctx, hook, d)
	case mode == spool.KeepOff:
		return spool.Answer{}, spool.ErrBusy
	}
	id, err := sp.Keep(ctx, hook, d)
	return spool.Answer{Status: http.StatusAccepted, Kept: true, ID: id}, err
}

// enter returns the spool to use until leave is called.
func (k *keeper) enter() (sp *spool.Spool, moving bool, leave func()) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	k.round.Add(1)
	return k.sp, k.moving, k.round.Done
}

// current is the spool in use, nil for none.
func (k *keeper) current() *spool.Spool {
	sp, _ := k.now()
	return sp
}

func (k *keeper) now() (sp *spool.Spool, moving bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.sp, k.moving
}

// turn changes what deliveries do from now on and waits for those that began
// before; they end within their deadline.
func (k *keeper) turn(sp *spool.Spool, moving bool) {
	k.mu.Lock()
	before := k.round
	k.sp, k.moving, k.round = sp, moving, new(sync.WaitGroup)
	k.mu.Unlock()
	before.Wait()
}

// adoptRounds bounds the rounds before new deliveries have to wait.
const adoptRounds = 16

// takeOver moves everything into another spool. Deliveries that come meanwhile
// are kept in the old one; the last of those move while new ones wait. On an
// error the rest stays and the old spool is still in use, at rest.
func (k *keeper) takeOver(ctx context.Context, use *spoolUse) (moved int, err error) {
	from, to := k.current(), use.sp
	if err := from.SetHooks(nil); err != nil {
		return 0, err
	}
	k.turn(from, true)
	if err := from.Rest(ctx); err != nil {
		return 0, err
	}
	for n, i := 1, 0; n > 0 && i < adoptRounds; i++ {
		if n, err = to.Adopt(ctx, from); err != nil {
			return moved + n, err
		}
		moved += n
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.round.Wait() // each is one write
	n, err := to.Adopt(ctx, from)
	if err == nil {
		err = use.force()
	}
	if err == nil {
		k.sp, k.moving, k.round = to, false, new(sync.WaitGroup)
	}
	return moved + n, err
}

// spoolUse is one configuration's use of the spool of a pool.
type spoolUse struct {
	gen     *generation
	plan    *spoolPlan
	sp      *spool.Spool
	release func() error
	hold    func() error // a second hold on sp, until a keeper takes it
}

// end gives back what the configuration holds.
func (u *spoolUse) end() {
	dir := u.plan.config.Dir
	if u.hold != nil {
		spoolEvents.closed(dir, u.hold())
	}
	spoolEvents.closed(dir, u.release())
}

// force puts the bounds and hooks of the configuration in force.
func (u *spoolUse) force() error {
	u.sp.SetLimits(u.plan.config)
	return u.sp.SetHooks(u.plan.hooks)
}

// open opens the directory or joins those who have it open.
func (p *spoolPlan) open() (*spool.Spool, func() error, error) {
	c := p.config
	c.Log = spoolEvents.take
	sp, release, err := spool.Use(c)
	if err != nil {
		err = fmt.Errorf("spool %q: %w", c.Dir, err)
	}
	return sp, release, err
}
