// Command bench measures the gateway beside bare Caddy, nginx and HAProxy on
// this machine and writes docs/benchmarks.md. `make bench` runs it.
//
// Every figure compares systems of one run: they take turns, round by round, in
// an order that changes with each.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	gateway string
	output  string
	engine  string
	rounds  int
	round   time.Duration
	phase   time.Duration
	turns   int
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&o.gateway, "gateway", "", "a Caddy with this module, built without the race detector, as `file`")
	flags.StringVar(&o.output, "output", "", "the `file` to write; empty: only print")
	flags.StringVar(&o.engine, "engine", "", "output of the engine's own benchmarks, as `file`, to include")
	flags.IntVar(&o.rounds, "rounds", 9, "rounds of the measurements of CPU")
	flags.DurationVar(&o.round, "round", 2400*time.Millisecond, "length of one round of one system")
	flags.DurationVar(&o.phase, "phase", 8*time.Second, "length of one flood of one system")
	flags.IntVar(&o.turns, "turns", 2, "floods of each kind for each system")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.gateway == "" {
		return errors.New("-gateway is missing")
	}
	for _, tool := range []string{"nginx", "haproxy", "git"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("missing %s: install the Debian packages nginx-light, haproxy and git: %w", tool, err)
		}
	}
	dir, err := os.MkdirTemp("", "admission-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // nginx's workers are another user
		return err
	}
	b := &bench{options: o, dir: dir, report: newReport(ctx, o)}
	for _, part := range []func(context.Context) error{b.proxied, b.refused, b.pushes} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return b.report.write(o.output)
}

// bench is one run of everything.
type bench struct {
	options
	dir    string
	report *report
}
