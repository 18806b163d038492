package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Config is a gateway's configuration in two parts, because the harness adds its own global options.
type Config struct {
	Global string // lines of the global options block, without its braces
	Sites  string // everything after the global options block
	Env    []string
}

// Gateway is a running gateway binary with its own directory, administered over a unix socket.
type Gateway struct {
	*Process
	Dir    string // holds the Caddyfile, the socket and Caddy's data
	Socket string
	admin  *http.Client
}

// StartGateway starts the gateway and returns when it serves. A data race or a fatal error in its output fails the test when
// it ends.
func StartGateway(tb testing.TB, c Config) *Gateway {
	tb.Helper()
	g := newGateway(tb)
	g.Start(tb, c)
	return g
}

func newGateway(tb testing.TB) *Gateway {
	dir := TempDir(tb)
	g := &Gateway{Dir: dir, Socket: filepath.Join(dir, "admin.sock")}
	g.admin = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", g.Socket)
		},
	}}
	return g
}

// Start starts the binary again, after Stop or Kill, with the same directory and the configuration c.
func (g *Gateway) Start(tb testing.TB, c Config) {
	tb.Helper()
	g.StartFile(tb, g.Caddyfile(c), c.Env)
}

// StartFile is like Start with a whole Caddyfile, whose global options must contain those of [Gateway.Options].
func (g *Gateway) StartFile(tb testing.TB, caddyfile string, env []string) {
	tb.Helper()
	path := filepath.Join(g.Dir, "Caddyfile")
	WriteFile(tb, path, caddyfile)
	os.Remove(g.Socket)
	cmd := exec.Command(Binary(tb), "run", "--adapter", "caddyfile", "--config", path)
	cmd.Dir = g.Dir
	cmd.Env = append(g.environment(), env...)
	g.Process = startProcess(tb, "gateway", cmd)
	process := g.Process
	tb.Cleanup(func() { process.checkOutput(tb) })
	process.waitReady(tb, 60*time.Second, func() error {
		_, err := g.adminCall("GET", "/config/", "", "")
		return err
	})
}

// Caddyfile returns the whole configuration, with the global options the harness needs.
func (g *Gateway) Caddyfile(c Config) string {
	return "{\n" + g.Options() + "\n\tauto_https off\n" + c.Global + "\n}\n" + c.Sites + "\n"
}

// Options returns the lines of the global options block that keep a gateway to itself.
func (g *Gateway) Options() string {
	return fmt.Sprintf("\tadmin unix/%s\n\tdefault_bind 127.0.0.1\n\tpersist_config off\n\tskip_install_trust\n\tstorage file_system %s",
		g.Socket, filepath.Join(g.Dir, "data"))
}

func (g *Gateway) environment() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + g.Dir,
		"XDG_DATA_HOME=" + filepath.Join(g.Dir, "xdg"),
		"XDG_CONFIG_HOME=" + filepath.Join(g.Dir, "xdg"),
		"GORACE=halt_on_error=0",
	}
}

// Command runs another command of the binary to its end and returns its output and exit code.
func (g *Gateway) Command(tb testing.TB, args ...string) (output string, code int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, Binary(tb), args...)
	cmd.Dir = g.Dir
	cmd.Env = g.environment()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		tb.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// checkOutput fails the test when the process reported a data race or died of a fatal error.
func (p *Process) checkOutput(tb testing.TB) {
	tb.Helper()
	out := p.Output()
	for _, bad := range []string{"WARNING: DATA RACE", "fatal error: "} {
		if at := strings.Index(out, bad); at >= 0 {
			tb.Errorf("the gateway printed %q:\n%.8000s", bad, out[at:])
		}
	}
}

func (g *Gateway) adminCall(method, path, contentType, body string) ([]byte, error) {
	req, err := http.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := g.admin.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, out)
	}
	return out, nil
}
