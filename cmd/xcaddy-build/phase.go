package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/caddy-admission/gateway/integration/flood"
)

// phase is one row of the table.
type phase struct {
	name           string
	length         time.Duration
	gateway, flood bool

	mu     sync.Mutex // protects pushes
	pushes []flood.Attempt
	clones *flood.Result
	peak   int
}

// runPhase starts Caddy, the crowd and the people. No push starts after the
// phase's length; the crowd goes on until the last one has passed or its patience
// has ended, so that no attempt is cut short and left out.
func (d *demo) runPhase(ctx context.Context, p *phase) error {
	target, stop, err := d.start(ctx, d.site(p.gateway))
	if err != nil {
		return err
	}
	defer stop()
	fmt.Println(p.name)
	d.backend.ResetPeak()
	crowd, leave := context.WithCancel(ctx)
	defer leave()
	p.clones = flood.NewResult()
	var cloning, pushing sync.WaitGroup
	if p.flood {
		f := flood.Flood{Target: target, Clients: demoClones, Rate: demoRate, Pause: 200 * time.Millisecond, Driver: flood.Clone("/pub.git", d.tip), Result: p.clones}
		cloning.Go(func() { f.Run(crowd) })
		d.waitCrowd(ctx, p)
	}
	end := time.Now().Add(p.length)
	for _, someone := range d.pushers {
		pushing.Go(func() { p.push(ctx, someone, target, end) })
	}
	done := make(chan struct{})
	go func() { pushing.Wait(); close(done) }()
	d.report(p, done)
	leave()
	cloning.Wait()
	p.peak = d.backend.Peak()
	return ctx.Err()
}

// waitCrowd waits until everybody is there and the server has all the work that
// the crowd can give it: half of its workers behind the gateway.
func (d *demo) waitCrowd(ctx context.Context, p *phase) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	workers := demoWorkers
	if p.gateway {
		workers /= 2
	}
	flood.WaitBusy(ctx, d.backend, workers)
	for p.clones.Runs() < demoClones && ctx.Err() == nil {
		flood.Pause(ctx, 20*time.Millisecond)
	}
}

func (p *phase) push(ctx context.Context, someone *flood.Pusher, target string, end time.Time) {
	url := flood.WithCredential("http://"+target+"/pub.git", flood.User, flood.Password)
	for ctx.Err() == nil && time.Now().Before(end) {
		a := someone.Push(ctx, url, demoPatience)
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		p.pushes = append(p.pushes, a)
		p.mu.Unlock()
		flood.Pause(ctx, 300*time.Millisecond)
	}
}

// report says every five seconds how it goes, until done.
func (d *demo) report(p *phase, done <-chan struct{}) {
	start, t := time.Now(), time.NewTicker(5*time.Second)
	defer t.Stop()
	for {
		select {
		case <-done:
			return
		case <-t.C:
			tried, passed, _ := p.result()
			fmt.Printf("  %3.0f s: %d of %d pushes passed, %d clones served, %d of %d workers busy\n",
				time.Since(start).Seconds(), passed, tried, p.clones.Served(), d.backend.Busy(), demoWorkers)
		}
	}
}

// result counts the pushes and returns the times of those that passed.
func (p *phase) result() (tried, passed int, times []time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.pushes {
		if a.OK {
			times = append(times, a.Took)
		}
	}
	return len(p.pushes), len(times), times
}
