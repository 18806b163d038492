package caddymodule

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/caddy-admission/gateway/admission/spool"
)

// spools holds the keepers of this process, by pool.
//
// What is in force follows the live generations as the limits of pools do: the
// newest started one decides the hooks and, for the directory it names, the
// bounds; its stop gives them back. The directory changes only when the
// generation that named the old one has stopped, because then the reload can
// no longer be undone: what is kept moves.
//
// turns serialises starts, stops and steps of a move, over I/O; no request
// takes it. mu protects the maps and the fields that keeper leaves to it, and
// is held for moments. Lock order: turns, mu, a keeper's mu, the spool's.
type spools struct {
	turns sync.Mutex

	booted bool // a configuration has started

	mu     sync.Mutex
	byPool map[string]*keeper
	uses   map[*generation][]*spoolUse
	late   map[*generation]map[string]*spoolPlan // what a broken disk keeps from being opened
}

var keepers = newSpools()

func newSpools() *spools {
	return &spools{byPool: map[string]*keeper{}, uses: map[*generation][]*spoolUse{}, late: map[*generation]map[string]*spoolPlan{}}
}

// acquire returns the keeper of a pool and refers to it for gen.
func (s *spools) acquire(gen *generation, pool string) *keeper {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.byPool[pool]
	if k == nil {
		k = newKeeper(pool)
		s.byPool[pool] = k
	}
	k.refs[gen] = struct{}{}
	return k
}

// start opens the spools of a configuration, by pool, and puts its hooks in
// force. On an error nothing has changed. In a process that has just started,
// a directory whose disk is at fault is no error: its deliveries are refused
// until it can be opened, and everything else is served.
func (s *spools) start(gen *generation, plans map[string]*spoolPlan) error {
	s.turns.Lock()
	defer s.turns.Unlock()
	if err := s.checkMoves(plans); err != nil {
		return err
	}
	uses, late, err := openAll(gen, plans, !s.booted)
	if err != nil {
		return err
	}
	s.booted = true
	for pool, use := range uses {
		s.take(pool, use)
	}
	if len(late) > 0 {
		s.openLater(gen, late)
	}
	return nil
}

// take puts one opened use in force.
func (s *spools) take(pool string, use *spoolUse) {
	k := s.acquire(use.gen, pool)
	s.mu.Lock()
	s.uses[use.gen] = append(s.uses[use.gen], use)
	k.live = append(k.live, use)
	first := k.current() == nil
	if first {
		k.release, use.hold = use.hold, nil
	}
	s.mu.Unlock()
	if first {
		k.turn(use.sp, false)
		spoolEvents.opened(use.sp)
	}
	s.apply(k.current())
}

// checkMoves refuses that two pools exchange directories in one step.
func (s *spools) checkMoves(plans map[string]*spoolPlan) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pool, plan := range plans {
		for other, k := range s.byPool {
			if sp, next := k.current(), plans[other]; other != pool && sp != nil && next != nil &&
				sp.Dir() == plan.config.Dir && next.config.Dir != sp.Dir() {
				return fmt.Errorf("pool %s: spool: found %q, where pool %s still keeps; allowed: a directory that no other pool leaves in the same reload",
					pool, sp.Dir(), other)
			}
		}
	}
	return nil
}

// apply puts the hooks and bounds of a spool in force: those of the newest
// live generation of the pools that keep there. A spool that moves rests.
func (s *spools) apply(sp *spool.Spool) {
	s.mu.Lock()
	var newest *spoolUse
	resting := false
	for _, k := range s.byPool {
		if k.current() != sp {
			continue
		}
		resting = resting || k.resting
		if use := k.wanted(); use != nil && (newest == nil || newest.gen.id < use.gen.id) {
			newest = use
		}
	}
	s.mu.Unlock()
	if newest == nil || resting {
		return
	}
	if newest.sp == sp {
		sp.SetLimits(newest.plan.config)
	}
	if err := sp.SetHooks(newest.plan.hooks); err != nil {
		spoolEvents.failed("hooks not set", sp.Dir(), err)
	}
}

// wanted is the newest live use, nil when no live generation names the pool.
func (k *keeper) wanted() *spoolUse {
	if len(k.live) == 0 {
		return nil
	}
	return k.live[len(k.live)-1]
}

// stop takes gen off the stacks. Where another generation is live its hooks
// are in force again, and what is kept goes to the directory it names.
func (s *spools) stop(gen *generation) {
	s.turns.Lock()
	defer s.turns.Unlock()
	var left []*spool.Spool
	for _, k := range s.pop(gen) {
		sp := k.current()
		s.apply(sp)
		s.mu.Lock()
		use := k.wanted()
		if use == nil && !s.keptLocked(sp) {
			left = append(left, sp)
		}
		if use != nil && use.sp != sp && k.cancel == nil {
			var ctx context.Context
			ctx, k.cancel = context.WithCancel(context.Background())
			k.ended = make(chan struct{})
			go s.follow(ctx, k)
		}
		s.mu.Unlock()
	}
	for _, sp := range left {
		spoolEvents.left(sp)
	}
}

// keptLocked reports whether a live generation keeps in sp.
func (s *spools) keptLocked(sp *spool.Spool) bool {
	for _, k := range s.byPool {
		if k.current() == sp && k.wanted() != nil {
			return true
		}
	}
	return false
}

// pop takes gen off the stacks and returns the keepers that had it.
func (s *spools) pop(gen *generation) (touched []*keeper) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.late, gen)
	for _, pool := range slices.Sorted(maps.Keys(s.byPool)) {
		k := s.byPool[pool]
		n := len(k.live)
		k.live = slices.DeleteFunc(k.live, func(u *spoolUse) bool { return u.gen == gen })
		if len(k.live) < n {
			touched = append(touched, k)
		}
	}
	return touched
}

// release drops the references of gen. A spool that nobody refers to is
// closed; what it keeps stays on disk.
func (s *spools) release(gen *generation) {
	s.stop(gen)
	s.mu.Lock()
	uses := s.uses[gen]
	delete(s.uses, gen)
	var gone []func()
	for pool, k := range s.byPool {
		if delete(k.refs, gen); len(k.refs) == 0 {
			delete(s.byPool, pool)
			gone = append(gone, k.closerLocked())
		}
	}
	s.mu.Unlock()
	for _, end := range gone {
		end()
	}
	for _, use := range uses {
		if !s.kept(use.sp) { // a move was begun and its end is no longer wanted
			spoolEvents.left(use.sp)
		}
		use.end()
	}
}

func (s *spools) kept(sp *spool.Spool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keptLocked(sp)
}

// closerLocked returns what ends a keeper that nobody refers to any more,
// after its move and the deliveries that it is taking.
func (k *keeper) closerLocked() func() {
	cancel, ended := k.cancel, k.ended
	return func() {
		if cancel != nil {
			cancel()
			<-ended
		}
		sp := k.current()
		k.turn(nil, false)
		if sp != nil {
			spoolEvents.closed(sp.Dir(), k.release())
		}
	}
}

// follow brings what a keeper keeps to where the newest live generation wants
// it, and ends when it is there.
func (s *spools) follow(ctx context.Context, k *keeper) {
	defer close(k.ended)
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		done, err := s.followOnce(ctx, k)
		if done || ctx.Err() != nil {
			return
		}
		if err == nil {
			pause = time.Second
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// followOnce makes one move, or reports that none is due. The mover is done
// for good then: the next stop starts another.
func (s *spools) followOnce(ctx context.Context, k *keeper) (done bool, err error) {
	s.turns.Lock()
	from := k.current()
	s.mu.Lock()
	use := k.wanted()
	if done = use == nil || use.sp == from; done {
		k.cancel()
		k.cancel = nil
	}
	k.resting = !done
	s.mu.Unlock()
	var release func() error
	if !done {
		_, release, err = use.plan.open() // joins what is open
	}
	s.turns.Unlock()
	if done {
		return true, nil
	}
	if err != nil {
		s.mu.Lock()
		k.resting = false
		s.mu.Unlock()
		return false, err
	}
	moved, err := k.takeOver(ctx, use)
	s.turns.Lock()
	defer s.turns.Unlock()
	s.mu.Lock()
	k.resting = false
	if err == nil {
		k.release, release = release, k.release
	}
	s.mu.Unlock()
	spoolEvents.moved(from, use.sp, moved, err)
	if err != nil {
		k.turn(from, false)
	}
	s.apply(k.current())
	spoolEvents.closed(from.Dir(), release())
	return false, err
}

// keptSpool is the spool of one pool as list returns it.
type keptSpool struct {
	pool   string
	sp     *spool.Spool
	moving bool
}

// closed returns the directories that a broken disk keeps from being opened,
// by pool.
func (s *spools) closed() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	dirs := map[string]string{}
	for _, plans := range s.late {
		for pool, plan := range plans {
			dirs[pool] = plan.config.Dir
		}
	}
	return dirs
}

// list returns the open spools in the order of their pools.
func (s *spools) list() []keptSpool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []keptSpool
	for _, pool := range slices.Sorted(maps.Keys(s.byPool)) {
		if sp, moving := s.byPool[pool].now(); sp != nil {
			out = append(out, keptSpool{pool, sp, moving})
		}
	}
	return out
}
