package admission

import (
	"math"
	"time"
)

// alarm notes that pk's bucket lets the next waiter go at time at; 0 means that
// no time is known and something else will wake it.
func (c *Controller) alarm(pk *parking, at int64) {
	switch {
	case at == 0:
		c.silence(pk)
	case pk.pos < 0:
		pk.at = at
		c.alarms.push(pk)
	default:
		pk.at = at
		c.alarms.fix(pk.pos)
	}
}

func (c *Controller) silence(pk *parking) {
	if pk.pos >= 0 {
		c.alarms.remove(pk.pos)
	}
}

// tick lets go whoever waited for a time that has come, in the order of classes.
func (c *Controller) tick() {
	for len(c.alarms) > 0 && c.alarms[0].at <= c.now {
		pk := c.alarms[0]
		c.silence(pk)
		c.wake(pk)
	}
	for i := range c.classes {
		if c.classes[i].queue.ready.n() > 0 {
			c.pump(&c.classes[i])
		}
	}
	c.arm()
}

// arm sets the timer for the next time somebody may go.
func (c *Controller) arm() {
	next := int64(math.MaxInt64)
	if len(c.alarms) > 0 {
		next = c.alarms[0].at
	}
	for i := range c.classes {
		if at := c.classes[i].queue.wakeAt; at > 0 {
			next = min(next, at)
		}
	}
	if next == c.nextAt {
		return
	}
	c.nextAt = next
	if c.clock != nil {
		return
	}
	switch {
	case next == math.MaxInt64:
		c.timer.Stop()
	case c.timer == nil:
		c.timer = time.AfterFunc(time.Duration(next-c.now), c.ring)
	default:
		c.timer.Reset(time.Duration(next - c.now))
	}
}

// ring runs on the timer.
func (c *Controller) ring() {
	c.lock(zeroTime)
	defer c.mu.Unlock()
	c.nextAt = 0 // the timer has fired: set it again even for the same time
	c.arm()
}
