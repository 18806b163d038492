package flood

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Quantile returns the q-quantile (0 to 1) of times, 0 when there are none.
func Quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	s := slices.Clone(times)
	slices.Sort(s)
	return s[int(q*float64(len(s)-1)+0.5)]
}

// Tip returns the commit that main points to.
func Tip(ctx context.Context, repository string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", "-c", "safe.directory=*", "-C", repository, "rev-parse", "main").Output()
	return strings.TrimSpace(string(out)), err
}

// FreePort returns a loopback port that was free a moment ago. It is below the
// ports that Linux takes for outgoing connections.
func FreePort() (int, error) {
	for range 1000 {
		port := 12_000 + rand.IntN(20_000)
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port")
}

// WaitListening waits until addr accepts connections, ended is closed or ten
// seconds have passed.
func WaitListening(ctx context.Context, addr string, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			return c.Close()
		}
		select {
		case <-ended:
			return errors.New("it ended")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// WaitBusy waits until n workers of b are busy or ctx ends.
func WaitBusy(ctx context.Context, b *Backend, n int) {
	for b.Busy() < n && ctx.Err() == nil {
		Pause(ctx, 10*time.Millisecond)
	}
}

// Pause waits for d or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
