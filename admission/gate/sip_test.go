package gate

import (
	"errors"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// One write waits for room in the kernel's buffer; what the client takes out of it meanwhile says whether it is stalled.
func TestSlowIsNotStalledWhileItTakes(t *testing.T) {
	for _, c := range []struct {
		name      string
		perSecond int64
		known     bool
		ends      time.Duration // after which it is ended; 0: not within ten minutes
	}{
		{"a thin line", 2 << 10, true, 0},
		{"a byte now and then", 1, true, time.Minute},
		{"nothing", 0, true, time.Minute},
		{"nobody knows", 2 << 10, false, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, dog := watch(t.Context(), httptest.NewRecorder(), limits{slow: admission.SlowPolicy{Stall: time.Minute}})
				start := time.Now()
				var most atomic.Int64 // that it takes in all
				most.Store(1 << 30)
				dog.taken = func() (int64, bool) {
					return min(most.Load(), c.perSecond*int64(time.Since(start)/time.Second)), c.known
				}
				dog.begin(writing, 1<<15)
				defer dog.stop()
				select {
				case <-ctx.Done():
				case <-time.After(10 * time.Minute):
				}
				took := time.Since(start)
				if c.ends > 0 {
					if !errors.Is(dog.cut(), errStalled) || took != c.ends {
						t.Errorf("ended with %v after %v, want stalled after %v", dog.cut(), took, c.ends)
					}
					return
				}
				if dog.cut() != nil {
					t.Fatalf("ended with %v after %v", dog.cut(), took)
				}
				most.Store(c.perSecond * int64(took/time.Second))
				<-ctx.Done()
				if more := time.Since(start) - took; !errors.Is(dog.cut(), errStalled) || more > 2*time.Minute {
					t.Errorf("ended with %v %v after it stopped taking, want stalled within two minutes", dog.cut(), more)
				}
			})
		})
	}
}
