package cases

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// gateway is the process under test: the built binary with its own home,
// configuration, ports and log.
type gateway struct {
	binary string
	dir    string // home, data, configuration and logs
	plain  string // clear-text address of the site
	secure string // TLS address, "" without one
	admin  string

	race bool
	cmd  *exec.Cmd
	exit chan error
	base int64 // resident memory after the start, in bytes
}

func newGateway(binary, dir string) *gateway {
	g := &gateway{binary: binary, dir: dir, plain: freeAddress(), secure: freeAddress(), admin: freeAddress()}
	if info, err := buildinfo.ReadFile(binary); err == nil {
		for _, s := range info.Settings {
			g.race = g.race || (s.Key == "-race" && s.Value == "true")
		}
	}
	return g
}

func (g *gateway) file(name string) string { return filepath.Join(g.dir, name) }

// logFile is where everything the process writes goes.
func (g *gateway) logFile() string { return g.file("gateway.log") }

func (g *gateway) environment() []string {
	return append(os.Environ(), "HOME="+g.dir, "XDG_DATA_HOME="+g.file("data"), "XDG_CONFIG_HOME="+g.file("config"),
		"GORACE=halt_on_error=0")
}

// start runs the binary with a configuration and waits until it serves.
func (g *gateway) start(ctx context.Context, caddyfile string) error {
	if err := os.WriteFile(g.file("Caddyfile"), []byte(caddyfile), 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(g.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	g.cmd = exec.Command(g.binary, "run", "--config", g.file("Caddyfile"), "--adapter", "caddyfile")
	g.cmd.Dir, g.cmd.Env, g.cmd.Stdout, g.cmd.Stderr = g.dir, g.environment(), log, log
	if err := g.cmd.Start(); err != nil {
		return err
	}
	exit := make(chan error, 1)
	g.exit = exit
	go func(cmd *exec.Cmd) { exit <- cmd.Wait() }(g.cmd)
	if err := g.awaitReady(ctx); err != nil {
		g.kill()
		return err
	}
	return nil
}

// startLimit bounds the wait for a gateway to serve.
const startLimit = 60 * time.Second

func (g *gateway) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		select {
		case err := <-g.exit:
			g.exit <- err
			return fmt.Errorf("the gateway ended at its start: %w: %s", err, g.logTail())
		default:
		}
		if _, err := g.get(ctx, "/config/"); err == nil {
			if conn, err := net.Dial("tcp", g.plain); err == nil {
				return conn.Close()
			}
		}
		if !pause(ctx, 20*time.Millisecond) {
			return fmt.Errorf("the gateway does not serve: %s", g.logTail())
		}
	}
}

// kill ends the process at once and waits for its end.
func (g *gateway) kill() {
	if g.cmd == nil || g.cmd.Process == nil {
		return
	}
	_ = g.cmd.Process.Kill() // an error means that it has ended
	err := <-g.exit
	g.exit <- err
}

func (g *gateway) running() bool {
	select {
	case err := <-g.exit:
		g.exit <- err
		return false
	default:
		return g.cmd != nil
	}
}

var adminClient = &http.Client{Timeout: 30 * time.Second}

// get fetches a path of the admin endpoint.
func (g *gateway) get(ctx context.Context, path string) ([]byte, error) {
	return g.send(ctx, http.MethodGet, path, "", nil)
}

func (g *gateway) send(ctx context.Context, method, path, kind string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+g.admin+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := adminClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: status %d: %s", method, path, resp.StatusCode, clip(raw))
	}
	return raw, err
}

// load makes the process take another configuration.
func (g *gateway) load(ctx context.Context, caddyfile string) error {
	if err := os.WriteFile(g.file("Caddyfile"), []byte(caddyfile), 0o600); err != nil {
		return err
	}
	_, err := g.send(ctx, http.MethodPost, "/load", "text/caddyfile", []byte(caddyfile))
	return err
}

// command runs a subcommand of the binary.
func (g *gateway) command(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, g.binary, args...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = g.dir, g.environment(), &out, &errs
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// validate checks a configuration in a process of its own.
func (g *gateway) validate(ctx context.Context, name, caddyfile string) (output string, err error) {
	path := g.file(name + ".caddyfile")
	if err := os.WriteFile(path, []byte(caddyfile), 0o600); err != nil {
		return "", err
	}
	out, errs, err := g.command(ctx, "validate", "--config", path, "--adapter", "caddyfile")
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", err
	}
	if err != nil {
		err = errRejected
	}
	return out + errs, err
}

// errRejected says that a configuration was not accepted.
var errRejected = errors.New("configuration rejected")

func (g *gateway) log() []byte {
	raw, _ := os.ReadFile(g.logFile()) // no file: nothing was written
	return raw
}

// logTail is what the log says about a failure: its errors, else its end.
func (g *gateway) logTail() string {
	raw := g.log()
	var errs []string
	for _, line := range strings.Split(string(raw), "\n") {
		if strings.Contains(line, `"level":"error"`) || strings.HasPrefix(line, "Error:") {
			errs = append(errs, line)
		}
	}
	if len(errs) > 0 {
		return clip([]byte(errs[len(errs)-1]))
	}
	return string(raw[max(0, len(raw)-600):])
}

// rss is the resident memory of the process, in bytes.
func (g *gateway) rss() int64 {
	if g.cmd == nil || g.cmd.Process == nil {
		return 0
	}
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(g.cmd.Process.Pid) + "/status")
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(raw), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// disk is the size of everything below the process's home, in bytes.
func (g *gateway) disk() int64 {
	var sum int64
	_ = filepath.WalkDir(g.dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return sum
}

func clip(raw []byte) string {
	if len(raw) > 600 {
		return string(raw[:600]) + "…"
	}
	return string(raw)
}
