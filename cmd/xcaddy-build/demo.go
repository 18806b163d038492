package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/caddy-admission/gateway/integration/flood"
)

// What the demo does: small enough for a laptop, long enough to see.
const (
	demoWorkers = 16
	demoClones  = 96 // anonymous clients at once, each from its own address
	demoPushers = 4
	demoPhase   = 25 * time.Second
	demoLimit   = 20 * time.Second // patience of a person who pushes
	demoRate    = 400 << 10        // bytes per second of one anonymous client
)

// runDemo floods a git server without and with the gateway and prints what
// became of real pushes.
func runDemo(ctx context.Context) error {
	output, err := cachedBinary()
	if err != nil {
		return err
	}
	if err := build(ctx, output, nil); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "admission-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return demo(ctx, output, dir)
}

func demo(ctx context.Context, caddy, dir string) error {
	fmt.Printf("\nA git server with %d workers. %d anonymous clients, each from its own address, clone all the\n"+
		"time over slow lines; %d people push. Nothing leaves this machine.\n\n", demoWorkers, demoClones, demoPushers)
	if _, err := flood.NewRepository(ctx, dir, "pub.git", 4, 1<<20); err != nil {
		return err
	}
	backend, err := flood.StartBackend(flood.BackendConfig{Root: dir, Workers: demoWorkers, QueueWait: 10 * time.Second})
	if err != nil {
		return err
	}
	defer backend.Close()
	tip, err := flood.Tip(ctx, filepath.Join(dir, "pub.git"))
	if err != nil {
		return err
	}
	var rows []phase
	for _, p := range []phase{
		{name: "quiet", site: site("", backend.URL)},
		{name: "flood, without the gateway", site: site("", backend.URL), flood: true},
		{name: "flood, with the gateway", site: site(fmt.Sprintf("admission {\n\t\ttotal %d\n\t}", demoWorkers), backend.URL), flood: true},
	} {
		if err := p.run(ctx, caddy, dir, tip, backend); err != nil {
			return err
		}
		rows = append(rows, p)
	}
	fmt.Print("\n" + table(rows) + "\n")
	return nil
}

// site is the whole Caddyfile of one phase.
func site(directive, upstream string) string {
	return fmt.Sprintf("{\n\tadmin off\n\tauto_https off\n\tpersist_config off\n\tlog {\n\t\toutput discard\n\t}\n}\n"+
		"http://127.0.0.1:{$DEMO_PORT} {\n\t%s\n\treverse_proxy %s\n}\n", directive, strings.TrimPrefix(upstream, "http://"))
}

// phase is one row of the table.
type phase struct {
	name, site string
	flood      bool

	pushes []flood.Attempt
	clones *flood.Result
	peak   int
}

func (p *phase) run(ctx context.Context, caddy, dir, tip string, backend *flood.Backend) error {
	target, stop, err := startCaddy(ctx, caddy, dir, p.site)
	if err != nil {
		return err
	}
	defer stop()
	length := demoPhase
	if !p.flood {
		length = 5 * time.Second
	}
	fmt.Printf("%-28s ", p.name)
	defer fmt.Println()
	backend.ResetPeak()
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var wg sync.WaitGroup
	p.clones = &flood.Result{}
	if p.flood {
		f := flood.Flood{Target: target, Clients: demoClones, Rate: demoRate, Pause: 200 * time.Millisecond, Driver: flood.Clone("/pub.git", tip)}
		wg.Go(func() { p.clones = f.Run(ctx) })
		flood.WaitBusy(ctx, backend, demoWorkers/2)
	}
	attempts := make(chan flood.Attempt)
	for i := range demoPushers {
		url := flood.WithCredential("http://"+target+"/pub.git", flood.User, flood.Password)
		name := fmt.Sprintf("dev%d-%d", i, time.Now().UnixNano())
		wg.Go(func() { pushAll(ctx, dir, name, url, attempts) })
	}
	go func() { wg.Wait(); close(attempts) }()
	for a := range attempts {
		p.pushes = append(p.pushes, a)
		if a.OK {
			fmt.Print("+")
		} else {
			fmt.Print("x")
		}
	}
	p.peak = backend.Peak()
	return nil
}

// pushAll pushes until ctx ends; an attempt that the end cuts off does not
// count.
func pushAll(ctx context.Context, dir, name, url string, out chan<- flood.Attempt) {
	p, err := flood.NewPusher(ctx, dir, name, url)
	if err != nil {
		return
	}
	for ctx.Err() == nil {
		a := p.Push(ctx, demoLimit)
		if !a.OK && ctx.Err() != nil {
			return
		}
		out <- a
		flood.Pause(ctx, 300*time.Millisecond)
	}
}

// startCaddy runs the built binary and waits until it answers. stop ends it and
// waits for its end.
func startCaddy(ctx context.Context, caddy, dir, caddyfile string) (target string, stop func(), err error) {
	port, err := flood.FreePort()
	if err != nil {
		return "", nil, err
	}
	path := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(path, []byte(caddyfile), 0o600); err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, caddy, "run", "--adapter", "caddyfile", "--config", path)
	cmd.Env = append(os.Environ(), fmt.Sprintf("DEMO_PORT=%d", port), "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	said := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	stop = func() {
		_ = cmd.Process.Kill()
		<-ended
	}
	target = fmt.Sprintf("127.0.0.1:%d", port)
	if err := flood.WaitListening(ctx, target, ended); err != nil {
		stop()
		return "", nil, fmt.Errorf("caddy did not start: %w\n%s", err, said)
	}
	return target, stop, nil
}
