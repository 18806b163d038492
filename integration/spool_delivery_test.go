package integration

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// TestHangingReceiver: with a receiver that never answers, each of a hundred deliveries in sequence is acknowledged within 2 s,
// and the attempts that hang on it hold no verify permit.
func TestHangingReceiver(t *testing.T) {
	for _, mode := range []string{"overflow", "always"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			l := startLedger(t)
			defer l.hang()()
			k := startKeeper(t, mode, l.addr, "", "")
			const deliveries = 100
			var slowest time.Duration
			for n := range deliveries {
				start := time.Now()
				k.want(t, fmt.Sprintf("team/app%d", n%20), n, http.StatusAccepted)
				slowest = max(slowest, time.Since(start))
			}
			t.Logf("slowest answer %v", slowest)
			if slowest > 2*time.Second {
				t.Errorf("slowest answer took %v, want 2 s at most", slowest)
			}
			harness.Eventually(t, 20*time.Second, "four attempts that hang", func() error {
				if n := k.spool(t).Hooks[keptHook].Running; n != 4 {
					return fmt.Errorf("%d run", n)
				}
				return nil
			})
			c := k.Class(t, "webhook")
			if c.InUse != 0 || c.Permits() != deliveries {
				t.Errorf("%d verify permits in use, %d given out for %d deliveries", c.InUse, c.Permits(), deliveries)
			}
		})
	}
}

// TestStorm: 10,000 deliveries of one repository are kept before 20 of others come. The last of the others is delivered before
// a twentieth of the storm is. Forged ones are not kept.
func TestStorm(t *testing.T) {
	const storm, others = 10_000, 20
	l := startLedger(t)
	release := l.hang()
	defer release()
	k := startKeeper(t, "always", l.addr, "", "")
	started := time.Now()
	var senders sync.WaitGroup
	var next atomic.Int64
	var again atomic.Int64 // refused because the disk was slow, and sent again
	for range 4 {
		senders.Go(func() {
			for n := next.Add(1); n <= storm; n = next.Add(1) {
				for k.send("team/storm", int(n)) != http.StatusAccepted && !t.Failed() {
					if again.Add(1) > storm/10 {
						t.Errorf("delivery %d of the storm is refused again and again", n)
					}
				}
			}
		})
	}
	senders.Wait()
	t.Logf("%d deliveries acknowledged in %v, %d sent again", storm, time.Since(started), again.Load())
	for n := range others {
		k.want(t, fmt.Sprintf("team/other%d", n), n, http.StatusAccepted)
		if status := k.sendAs("team/forged", n, keptID("team/forged", n), "another secret"); status != http.StatusUnauthorized {
			t.Errorf("a forged delivery was answered %d", status)
		}
	}
	if s := k.spool(t); s.Kept != storm+others {
		t.Errorf("%d kept, want %d", s.Kept, storm+others)
	}
	l.behave(func(arrival) int { time.Sleep(5 * time.Millisecond); return http.StatusOK })
	release()
	stormy := 0
	harness.Eventually(t, time.Minute, "the others", func() error {
		left := others
		stormy = 0
		for _, a := range l.all() {
			switch {
			case strings.HasPrefix(a.repository, "team/other"):
				left--
			case left > 0:
				stormy++
			}
		}
		if left > 0 {
			return fmt.Errorf("%d are missing", left)
		}
		return nil
	})
	t.Logf("%d of the storm before the last of the others", stormy)
	if stormy >= storm/20 {
		t.Errorf("%d of the storm went before the last of the others, want fewer than %d", stormy, storm/20)
	}
	if n := len(first(l.all(), "team/forged")); n > 0 {
		t.Errorf("%d forged ones were delivered", n)
	}
}

// TestOutage: what comes while the receiver is down is acknowledged. When it is back all of it is delivered, in the order of
// each repository, and without a herd: one more at a time for each that was taken.
func TestOutage(t *testing.T) {
	const repositories, each = 6, 10
	l := startLedger(t)
	k := startKeeper(t, "overflow", l.addr, "", "")
	k.want(t, "team/app0", 0, http.StatusOK)
	l.down()
	for n := 1; n <= each; n++ {
		for r := range repositories {
			k.want(t, fmt.Sprintf("team/app%d", r), n, http.StatusAccepted)
		}
	}
	l.behave(func(arrival) int { time.Sleep(5 * time.Millisecond); return http.StatusOK })
	l.up(t)
	k.waitEmpty(t, time.Minute)
	all := l.all()[1:]
	for i, a := range all {
		if most := min(4, 1+a.done-1); a.inside > most { // done counts the one before the outage
			t.Errorf("arrival %d: %d at once after %d taken, want at most %d", i, a.inside, a.done-1, most)
		}
	}
	for r := range repositories {
		var got []int
		for _, a := range first(all, fmt.Sprintf("team/app%d", r)) {
			got = append(got, a.n)
		}
		if want := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}; !slices.Equal(got, want) {
			t.Errorf("team/app%d: %v", r, got)
		}
	}
}

// TestPoison: a delivery that the receiver always fails on is set aside after its tries and the next one goes. When the
// receiver is mended, the sender's redelivery with the same id passes, and nothing dead is left.
func TestPoison(t *testing.T) {
	l := startLedger(t)
	l.behave(func(a arrival) int {
		if a.n == 1 {
			return http.StatusInternalServerError
		}
		return http.StatusOK
	})
	k := startKeeper(t, "always", l.addr, "tries 2", "")
	k.want(t, "team/app", 1, http.StatusAccepted)
	k.want(t, "team/app", 2, http.StatusAccepted)
	harness.Eventually(t, time.Minute, "the delivery behind it", func() error {
		if list := first(l.all(), "team/app"); len(list) < 2 {
			return fmt.Errorf("%v", list)
		}
		return nil
	})
	if all := l.all(); len(all) != 3 || all[1].n != 1 {
		t.Errorf("arrivals %v, want two attempts and the next one", all)
	}
	k.waitEmpty(t, 10*time.Second)
	if s := k.spool(t); s.Dead != 1 || s.Died["exhausted"] != 1 {
		t.Errorf("%d dead: %v", s.Dead, s.Died)
	}
	l.behave(nil)
	k.want(t, "team/app", 1, http.StatusAccepted)
	k.waitEmpty(t, 10*time.Second)
	if s := k.spool(t); s.Dead != 0 || s.Dropped["revived"] != 1 {
		t.Errorf("after the redelivery: %d dead, %v", s.Dead, s.Dropped)
	}
	if all := l.all(); len(all) != 4 || all[3].id != keptID("team/app", 1) {
		t.Errorf("arrivals %v", all)
	}
}

// giteaPatience is when Gitea gives up.
const giteaPatience = 5 * time.Second

// TestGiteaIsAnswered: a delivery of a real Gitea is answered before Gitea gives up, in every mode, while the receiver hangs.
func TestGiteaIsAnswered(t *testing.T) {
	var captured *vector
	for _, v := range capturedVectors(t) {
		if strings.Contains(v.ID, "push-main") {
			captured = v
		}
	}
	l := startLedger(t)
	t.Cleanup(l.hang()) // the parallel parts run after this function
	for mode, want := range map[string]int{
		"keep off": http.StatusGatewayTimeout, "keep off\ndeliver http://" + l.addr + "/": http.StatusGatewayTimeout,
		"keep overflow\ndeliver http://" + l.addr + "/": http.StatusAccepted, "keep always\ndeliver http://" + l.addr + "/": http.StatusAccepted,
	} {
		t.Run(strings.Fields(mode)[1]+fmt.Sprint(strings.Contains(mode, "deliver")), func(t *testing.T) {
			t.Parallel()
			s := startIngress(t, l.addr, fmt.Sprintf("webhook %s {\n profile gitea\n secret_file %s\n %s\n}\nspool %s/spool\n",
				keptHook, secretFile(t, "hook-secret"), mode, harness.TempDir(t)))
			start := time.Now()
			r := mustPost(t, s.addr, captured.head(keptHook), string(captured.Body))
			took := time.Since(start)
			t.Logf("%s after %v", r.Status, took)
			if r.StatusCode != want || took > giteaPatience-500*time.Millisecond {
				t.Errorf("%v after %v, want %d within 4 s", r, took, want)
			}
		})
	}
}
