// Command xcaddy-build makes a Caddy with the admission module, runs it, or
// shows on this machine what it does.
//
//	go run ./cmd/xcaddy-build demo
//	go run ./cmd/xcaddy-build build [--with module[@version]]… [--output caddy]
//	go run ./cmd/xcaddy-build run [caddy arguments]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

const usage = `usage: xcaddy-build <command>

  build [--with module[@version]]... [--output caddy]
        builds Caddy with this module and, if you like, more modules
  run [caddy arguments]
        builds and then becomes that Caddy, e.g. run --config Caddyfile
  demo [--binary file] [--phase 25s]
        floods a git server on this machine, without and with the gateway;
        with --binary it takes a Caddy that has this module instead of building one
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := command(ctx, os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "interrupted; everything that was started has ended")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "xcaddy-build:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return flag.ErrHelp
	}
	switch args[0] {
	case "build":
		return runBuild(ctx, args[1:])
	case "run":
		return runCaddy(ctx, args[1:])
	case "demo":
		return runDemo(ctx, args[1:])
	}
	fmt.Fprintf(os.Stderr, "unknown command %q\n%s", args[0], usage)
	return flag.ErrHelp
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func runBuild(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	var with list
	flags.Var(&with, "with", "another module to build in, as `module[@version]`; may be repeated")
	output := flags.String("output", "caddy", "the `file` to write")
	if err := flags.Parse(args); err != nil {
		return flag.ErrHelp
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("build takes no argument %q; modules go behind --with", flags.Arg(0))
	}
	return build(ctx, *output, with)
}

// runCaddy builds and replaces this process by the result, so that signals and
// the exit code are Caddy's own.
func runCaddy(ctx context.Context, args []string) error {
	output, err := cachedBinary()
	if err != nil {
		return err
	}
	if err := build(ctx, output, nil); err != nil {
		return err
	}
	return syscall.Exec(output, append([]string{"caddy", "run"}, args...), os.Environ())
}

// cachedBinary is where run and demo keep their build.
func cachedBinary() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	dir = filepath.Join(dir, "caddy-admission")
	return filepath.Join(dir, "caddy"), os.MkdirAll(dir, 0o700)
}
