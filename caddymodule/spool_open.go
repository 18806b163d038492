package caddymodule

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/caddy-admission/gateway/admission/spool"
)

// openAll opens every directory, with a second hold on each for its keeper.
// With patience, those whose disk is at fault are late instead of an error.
func openAll(gen *generation, plans map[string]*spoolPlan, patience bool) (uses map[string]*spoolUse, late map[string]*spoolPlan, err error) {
	uses, late = map[string]*spoolUse{}, map[string]*spoolPlan{}
	var errs []error
	for _, pool := range slices.Sorted(maps.Keys(plans)) {
		use, err := openUse(gen, plans[pool])
		var disk *spool.DiskError
		switch {
		case err == nil:
			uses[pool] = use
		case patience && errors.As(err, &disk) && disk.Disk():
			late[pool] = plans[pool]
			spoolEvents.failed("spool not open, its deliveries are refused until it is", plans[pool].config.Dir, err)
		default:
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		for _, use := range uses {
			use.end()
		}
		return nil, nil, err
	}
	return uses, late, nil
}

func openUse(gen *generation, plan *spoolPlan) (*spoolUse, error) {
	use := &spoolUse{gen: gen, plan: plan}
	var err error
	if use.sp, use.release, err = plan.open(); err != nil {
		return nil, err
	}
	if _, use.hold, err = plan.open(); err != nil { // joins what is open
		return nil, errors.Join(err, use.release())
	}
	return use, nil
}

// openEvery is the time between two tries to open what is late.
const openEvery = 5 * time.Second

// openLater tries again until everything is open or the generation has ended.
func (s *spools) openLater(gen *generation, late map[string]*spoolPlan) {
	s.mu.Lock()
	s.late[gen] = late
	s.mu.Unlock()
	var again func()
	again = func() {
		s.turns.Lock()
		defer s.turns.Unlock()
		for pool, plan := range s.lateOf(gen) {
			if use, err := openUse(gen, plan); err == nil {
				s.mu.Lock()
				delete(s.late[gen], pool)
				s.mu.Unlock()
				s.take(pool, use)
			}
		}
		if len(s.lateOf(gen)) > 0 {
			time.AfterFunc(openEvery, again)
		}
	}
	time.AfterFunc(openEvery, again)
}

// lateOf are the plans of a live generation that are not open yet.
func (s *spools) lateOf(gen *generation) map[string]*spoolPlan {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.late[gen])
}
