package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caddy-admission/gateway/integration/flood"
)

// What the demo does: small enough for a laptop, long enough to see.
const (
	demoWorkers  = 16
	demoClones   = 96 // anonymous clients at once, each from its own address
	demoPushers  = 4
	demoPatience = 15 * time.Second // of a person who pushes
	demoRate     = 2 << 20          // bytes per second of one anonymous client
	demoFiles    = 16               // of a mebibyte each in the repository: more than the kernel's buffers take off a worker
)

func runDemo(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	binary := flags.String("binary", "", "a Caddy with this module, as `file`; empty: build one")
	phase := flags.Duration("phase", 25*time.Second, "how long each of the two floods goes on")
	if err := flags.Parse(args); err != nil {
		return flag.ErrHelp
	}
	if *binary == "" {
		output, err := cachedBinary()
		if err != nil {
			return err
		}
		if err := build(ctx, output, nil); err != nil {
			return err
		}
		*binary = output
	}
	dir, err := os.MkdirTemp("", "admission-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d := &demo{caddy: *binary, dir: dir, phase: *phase}
	defer d.close()
	return d.run(ctx)
}

// demo floods a git server without and with the gateway and prints what became
// of real pushes.
type demo struct {
	caddy, dir string
	phase      time.Duration

	backend *flood.Backend
	pushers []*flood.Pusher
	tip     string
}

func (d *demo) run(ctx context.Context) error {
	fmt.Printf(`
A git server with %d workers, in front of it Caddy, on this machine only.
%d people push over and over and give up after %s. Then %d anonymous clients,
each from its own address and over a line of %d MiB/s, clone %d MiB all the time.

`, demoWorkers, demoPushers, demoPatience, demoClones, demoRate>>20, demoFiles)
	if err := d.prepare(ctx); err != nil {
		return err
	}
	quiet := max(d.phase/4, time.Second)
	var rows []*phase
	for _, p := range []*phase{
		{name: "quiet, without the gateway", length: quiet},
		{name: "flood, without the gateway", length: d.phase, flood: true},
		{name: "quiet, with the gateway", length: quiet, gateway: true},
		{name: "flood, with the gateway", length: d.phase, gateway: true, flood: true},
	} {
		if err := d.runPhase(ctx, p); err != nil {
			return err
		}
		rows = append(rows, p)
	}
	fmt.Print("\n" + table(rows) + "\n" + legend + "\n")
	return nil
}

// legend explains the table.
var legend = fmt.Sprintf(`Times are those of pushes that passed. "Most at the server" is how many requests it
worked on at once. With the gateway the crowd gets half of the workers and otherwise
waits or is told when to come back: pushes have places that no stranger can take.
All the configuration there was:

	admission {
		total %d
	}
`, demoWorkers)

// prepare makes the repository, the server and the people.
func (d *demo) prepare(ctx context.Context) error {
	bare, err := flood.NewRepository(ctx, d.dir, "pub.git", demoFiles, 1<<20)
	if err != nil {
		return err
	}
	if d.tip, err = flood.Tip(ctx, bare); err != nil {
		return err
	}
	if d.backend, err = flood.StartBackend(flood.BackendConfig{Root: d.dir, Workers: demoWorkers}); err != nil {
		return err
	}
	for i := range demoPushers {
		p, err := flood.NewPusher(ctx, d.dir, fmt.Sprintf("dev%d", i))
		if err != nil {
			return err
		}
		d.pushers = append(d.pushers, p)
	}
	return nil
}

func (d *demo) close() {
	if d.backend != nil {
		d.backend.Close()
	}
}

// site is the whole Caddyfile of one phase.
func (d *demo) site(gateway bool) string {
	directive := ""
	if gateway {
		directive = fmt.Sprintf("admission {\n\t\ttotal %d\n\t}", demoWorkers)
	}
	return fmt.Sprintf("{\n\tadmin off\n\tauto_https off\n\tpersist_config off\n\tlog {\n\t\tlevel ERROR\n\t}\n}\n"+
		"http://127.0.0.1:{$DEMO_PORT} {\n\t%s\n\treverse_proxy %s\n}\n", directive, strings.TrimPrefix(d.backend.URL, "http://"))
}

// start runs Caddy and waits until it answers. stop ends it and waits for its
// end. Between choosing a port and using it somebody may take it, so there are
// three tries.
func (d *demo) start(ctx context.Context, caddyfile string) (target string, stop func(), err error) {
	path := filepath.Join(d.dir, "Caddyfile")
	if err := os.WriteFile(path, []byte(caddyfile), 0o600); err != nil {
		return "", nil, err
	}
	for range 3 {
		var port int
		if port, err = flood.FreePort(); err != nil {
			return "", nil, err
		}
		caddy := flood.Server{
			Command: []string{d.caddy, "run", "--adapter", "caddyfile", "--config", path},
			Env:     []string{fmt.Sprintf("DEMO_PORT=%d", port), "XDG_DATA_HOME=" + d.dir, "XDG_CONFIG_HOME=" + d.dir},
		}
		target = fmt.Sprintf("127.0.0.1:%d", port)
		if _, stop, err = caddy.Start(ctx, target); err == nil || ctx.Err() != nil {
			break
		}
	}
	return target, stop, err
}
