package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/caddy-admission/gateway/integration/flood"
)

// repository makes the repository of one turn below dir: so many files of a mebibyte.
func repository(ctx context.Context, dir string, files int) (bare, tip string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	if bare, err = flood.NewRepository(ctx, dir, "pub.git", files, 1<<20); err != nil {
		return "", "", err
	}
	tip, err = flood.Tip(ctx, bare)
	return bare, tip, err
}

// team is people who push, each from an address of their own.
type team struct {
	people []*flood.Pusher
	urls   []string
}

func newTeam(ctx context.Context, dir, target string) (*team, func(), error) {
	t := &team{}
	var relays []*flood.Relay
	stop := func() {
		for _, r := range relays {
			r.Close()
		}
	}
	for i := range pushers {
		p, err := flood.NewPusher(ctx, dir, fmt.Sprintf("dev%d", i))
		if err != nil {
			stop()
			return nil, nil, err
		}
		r, err := flood.StartRelay(target, 50_000+i)
		if err != nil {
			stop()
			return nil, nil, err
		}
		relays = append(relays, r)
		t.people = append(t.people, p)
		t.urls = append(t.urls, flood.WithCredential("http://"+r.Addr+"/pub.git", flood.User, flood.Password))
	}
	return t, stop, nil
}

// push lets everybody push for d and returns every attempt: none begins later,
// and those that run then go on to their end.
func (t *team) push(ctx context.Context, d time.Duration) (all []flood.Attempt) {
	end := time.Now().Add(d)
	var mu sync.Mutex
	var pushing sync.WaitGroup
	for i, p := range t.people {
		pushing.Go(func() {
			for ctx.Err() == nil && time.Now().Before(end) {
				a := p.Push(ctx, t.urls[i], pushPatience)
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				all = append(all, a)
				mu.Unlock()
				flood.Pause(ctx, 200*time.Millisecond)
			}
		})
	}
	pushing.Wait()
	return all
}
