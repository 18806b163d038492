package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/caddy-admission/gateway/integration/flood"
)

// system is one configured server under test.
type system struct {
	name   string
	file   string // its configuration's name
	config string // with @ADDR@, @PORT@, @UPSTREAM@ and @DIR@
	// command starts it with the configuration @CONFIG@.
	command []string
}

func (b *bench) caddy(name, directives string) system {
	return system{
		name: name, file: "Caddyfile",
		command: []string{b.gateway, "run", "--adapter", "caddyfile", "--config", "@CONFIG@"},
		config: `{
	admin off
	auto_https off
	persist_config off
	log {
		level ERROR
	}
}
http://:@PORT@ {
	bind 127.0.0.1
	` + directives + `
}
`,
	}
}

func nginx(name, config string) system {
	return system{name: name, file: "nginx.conf", config: config, command: []string{"nginx", "-p", "@DIR@", "-c", "@CONFIG@", "-e", "/dev/null"}}
}

func haproxy(name, config string) system {
	return system{name: name, file: "haproxy.cfg", config: config, command: []string{"haproxy", "-db", "-f", "@CONFIG@"}}
}

// running is a started system.
type running struct {
	system
	addr string
	pid  int // and its process group
	stop func()
}

// start starts s in front of upstream (host:port) in a directory of its own.
func (b *bench) start(ctx context.Context, s system, upstream string) (*running, error) {
	dir, err := os.MkdirTemp(b.dir, "system-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	port, err := flood.FreePort()
	if err != nil {
		return nil, err
	}
	r := &running{system: s, addr: fmt.Sprintf("127.0.0.1:%d", port)}
	path := filepath.Join(dir, s.file)
	fill := strings.NewReplacer("@ADDR@", r.addr, "@PORT@", fmt.Sprint(port), "@UPSTREAM@", upstream, "@DIR@", dir, "@CONFIG@", path)
	if err := os.WriteFile(path, []byte(fill.Replace(s.config)), 0o644); err != nil {
		return nil, err
	}
	server := flood.Server{Env: []string{"XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "HOME=" + dir}}
	for _, word := range s.command {
		server.Command = append(server.Command, fill.Replace(word))
	}
	r.pid, r.stop, err = server.Start(ctx, r.addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return r, nil
}

// startAll starts all of them; stop ends what has started.
func (b *bench) startAll(ctx context.Context, all []system, upstream string) (started []*running, stop func(), err error) {
	stop = func() {
		for _, r := range started {
			r.stop()
		}
	}
	for _, s := range all {
		r, err := b.start(ctx, s, upstream)
		if err != nil {
			stop()
			return nil, nil, err
		}
		started = append(started, r)
	}
	return started, stop, nil
}
