package harness

import (
	"testing"
	"time"
)

// poll is how often a condition is looked at again while waiting for it.
const poll = 20 * time.Millisecond

// Eventually returns as soon as condition returns nil, and fails the test with its last error when it has not within limit.
func Eventually(tb testing.TB, limit time.Duration, what string, condition func() error) {
	tb.Helper()
	if err := eventually(limit, condition); err != nil {
		tb.Fatalf("%s: not within %v: %v", what, limit, err)
	}
}

func eventually(limit time.Duration, condition func() error) error {
	end := time.NewTimer(limit)
	defer end.Stop()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-end.C:
			return err
		}
	}
}
