package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/caddyserver/xcaddy"
)

const (
	modulePath   = "github.com/caddy-admission/gateway"
	caddyVersion = "v2.11.9" // the version of go.mod; a test compares them
)

// build writes a Caddy with this checkout's module to output. What the build
// prints is shown only when it fails.
func build(ctx context.Context, output string, with []string) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	b := xcaddy.Builder{
		CaddyVersion: caddyVersion,
		// Without an explicit version the build would look for a published one.
		Plugins:      []xcaddy.Dependency{{PackagePath: modulePath, Version: "v0.0.0"}},
		Replacements: []xcaddy.Replace{xcaddy.NewReplace(modulePath, root)},
	}
	for _, m := range with {
		path, version, _ := strings.Cut(m, "@")
		b.Plugins = append(b.Plugins, xcaddy.Dependency{PackagePath: path, Version: version})
	}
	fmt.Fprintf(os.Stderr, "building Caddy %s with this module (minutes on a new machine, seconds later)\n", caddyVersion)
	start, done := time.Now(), make(chan struct{})
	go progress(start, done)
	said, err := quietly(func() error { return b.Build(ctx, output) })
	close(done)
	if err != nil {
		_, _ = io.Copy(os.Stderr, said)
		return fmt.Errorf("build: %w", err)
	}
	fmt.Fprintf(os.Stderr, "built %s in %s\n", output, time.Since(start).Round(time.Second))
	return nil
}

func progress(start time.Time, done <-chan struct{}) {
	t := time.NewTicker(15 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			fmt.Fprintf(os.Stderr, "  still building, %s\n", time.Since(start).Round(time.Second))
		case <-done:
			return
		}
	}
}

// quietly runs f while the process's standard output and error and the standard
// logger go to a buffer: the builder passes its commands the real ones.
func quietly(f func() error) (said *bytes.Buffer, err error) {
	said = &bytes.Buffer{}
	r, w, err := os.Pipe()
	if err != nil {
		return said, err
	}
	stdout, stderr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = w, w
	log.SetOutput(w)
	copied := make(chan struct{})
	go func() { _, _ = io.Copy(said, r); close(copied) }()
	defer func() {
		os.Stdout, os.Stderr = stdout, stderr
		log.SetOutput(stderr)
		_ = w.Close()
		<-copied
		_ = r.Close()
	}()
	return said, f()
}

// moduleRoot finds this module's folder: the build must see the checkout.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}").Output()
	if err != nil {
		return "", errors.New("run this inside the checkout of " + modulePath + " with Go installed")
	}
	path, dir, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if path != modulePath {
		return "", fmt.Errorf("this is module %s; run it inside the checkout of %s", path, modulePath)
	}
	return filepath.Abs(dir)
}
