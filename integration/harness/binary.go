package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// BinaryVariable names the environment variable that gives the path of a gateway binary built before; without it the tests
// build ./cmd/caddy with the race detector.
const BinaryVariable = "GATEWAY_BINARY"

var binary struct {
	once sync.Once
	path string
	dir  string // to remove at the end, "" when the binary was given
	err  error
}

// Main builds the gateway once, runs the tests and returns the exit code. Call it from TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
func Main(m *testing.M) int {
	path, err := buildOnce()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gateway binary:", err)
		return 1
	}
	fmt.Fprintln(os.Stderr, "gateway binary:", path)
	defer func() {
		if binary.dir != "" {
			os.RemoveAll(binary.dir)
		}
	}()
	return m.Run()
}

// Binary returns the path of the gateway under test.
func Binary(tb testing.TB) string {
	tb.Helper()
	path, err := buildOnce()
	if err != nil {
		tb.Fatalf("gateway binary: %v", err)
	}
	return path
}

func buildOnce() (string, error) {
	binary.once.Do(func() {
		if path := os.Getenv(BinaryVariable); path != "" {
			binary.path, binary.err = filepath.Abs(path)
			if _, err := os.Stat(binary.path); err != nil {
				binary.err = err
			}
			return
		}
		binary.path, binary.err = build()
	})
	return binary.path, binary.err
}

func build() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	if binary.dir, err = os.MkdirTemp("", "gateway-bin"); err != nil {
		return "", err
	}
	path := filepath.Join(binary.dir, "caddy")
	cmd := exec.Command("go", "build", "-race", "-o", path, "./cmd/caddy")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
}

// Root returns the directory of the module: the files the tests read beside the binary, such as caddyfile.example.
func Root(tb testing.TB) string {
	tb.Helper()
	root, err := moduleRoot()
	if err != nil {
		tb.Fatal(err)
	}
	return root
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = parent
	}
}
