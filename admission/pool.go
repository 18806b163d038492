package admission

// gitState is what the git classes share. Guarded by Controller.mu.
type gitState struct {
	total int
	rest  int // total minus the reserves
	held  int // sum of the git classes' held
	used  int // of the shared rest: the sum over git classes of max(0, held-reserve)
}

// classState is everything about one class. Guarded by Controller.mu.
type classState struct {
	class   Class
	policy  ClassPolicy
	tracked uint16 // scopes whose keys are looked up, as bits

	held      int // places taken, abandoned ones included
	abandoned int // of held: the client is gone, the upstream still works
	beyond    int // permits granted in dry run outside every limit, not in held
	unproven  int // of held: not Proven

	bucket   bucket
	bytes    bucket
	caller   callerBucket
	overflow [NumScopes]callerEntry // shared by callers the table has no room for

	queue queue

	decisions [NumDecisions]uint64
	outcomes  [NumOutcomes]uint64
	holds     Histogram
	meanHold  float64 // moving average of hold times in ns; 0 = none seen
}

// full returns why the class has no place left, or ReasonNone.
func (c *Controller) full(cl *classState) Reason {
	p := &cl.policy
	if p.Max != Unlimited && cl.held >= p.Max {
		return ReasonPoolFull
	}
	if !cl.class.Git() {
		return ReasonNone
	}
	if c.git.held >= c.git.total || (cl.held >= p.Reserve && c.git.used >= c.git.rest) {
		return ReasonTotalFull
	}
	return ReasonNone
}

// occupy takes one place of the class.
func (c *Controller) occupy(cl *classState, unproven bool) {
	if cl.class.Git() {
		c.git.held++
		if cl.held >= cl.policy.Reserve {
			c.git.used++
		}
	}
	cl.held++
	if unproven {
		cl.unproven++
	}
}

// vacate gives one place of the class back.
func (c *Controller) vacate(cl *classState, unproven bool) {
	cl.held--
	if unproven {
		cl.unproven--
	}
	if cl.class.Git() {
		c.git.held--
		if cl.held >= cl.policy.Reserve {
			c.git.used--
		}
	}
}

// recount derives the shared figures after reserves or the total changed.
func (c *Controller) recount() {
	c.git = gitState{total: c.policy.Total, rest: c.policy.Rest()}
	for i := Push; i.Git(); i++ {
		cl := &c.classes[i]
		c.git.held += cl.held
		c.git.used += max(0, cl.held-cl.policy.Reserve)
	}
}
