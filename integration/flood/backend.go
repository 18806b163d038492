package flood

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"
)

// Credential that Backend accepts for pushing.
const (
	User     = "dev"
	Password = "correct horse"
)

// BackendConfig describes a git server with a fixed number of workers.
type BackendConfig struct {
	Root      string        // folder of bare repositories
	Workers   int           // requests served at once
	QueueWait time.Duration // a request without a worker gets 503 after this; zero: it waits for ever
	Think     time.Duration // what packing for a clone takes before its first byte; it goes on although the client left
	AuthDelay time.Duration // what one password check costs

	// ChallengeDelay is what a 401 to a request without a credential costs.
	ChallengeDelay time.Duration
	// Account says who may push; nil: User with Password. It must be safe for
	// concurrent use.
	Account func(user, password string) bool
}

// Backend serves the repositories below Root: reading is open to everybody and
// any credential, as Apache's documented set-up has it; pushing needs User.
type Backend struct {
	URL string

	cfg     BackendConfig
	srv     *http.Server
	workers chan struct{}
	git     string
	root    context.Context
	cancel  context.CancelFunc

	busy, shed, requests, checks atomic.Int64
	peak, checking, peakChecking atomic.Int64
}

// StartBackend starts the server on a free loopback port.
func StartBackend(cfg BackendConfig) (*Backend, error) {
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return nil, fmt.Errorf("git is needed: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if cfg.Account == nil {
		cfg.Account = func(user, password string) bool { return user == User && password == Password }
	}
	b := &Backend{
		URL: "http://" + l.Addr().String(), cfg: cfg,
		workers: make(chan struct{}, cfg.Workers),
		git:     strings.TrimSpace(string(out)) + "/git-http-backend",
	}
	if _, err := os.Stat(b.git); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("git http-backend is needed: %w", err)
	}
	b.root, b.cancel = context.WithCancel(context.Background())
	b.srv = &http.Server{Handler: b, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = b.srv.Serve(l) }()
	return b, nil
}

// Close ends the server and its git processes.
func (b *Backend) Close() {
	b.cancel()
	_ = b.srv.Close()
}

// Peak is the most workers that were busy at once since the last ResetPeak.
func (b *Backend) Peak() int { return int(b.peak.Load()) }

// PeakChecks is the most password checks that ran at once.
func (b *Backend) PeakChecks() int { return int(b.peakChecking.Load()) }

// ResetPeak starts a new measurement of everything that is counted.
func (b *Backend) ResetPeak() {
	b.peak.Store(b.busy.Load())
	b.peakChecking.Store(b.checking.Load())
	b.shed.Store(0)
	b.checks.Store(0)
	b.requests.Store(0)
}

// Busy is how many workers are busy now.
func (b *Backend) Busy() int { return int(b.busy.Load()) }

// Shed counts requests that got no worker in time.
func (b *Backend) Shed() int { return int(b.shed.Load()) }

// Checks counts password checks.
func (b *Backend) Checks() int { return int(b.checks.Load()) }

// Requests counts requests that reached the server.
func (b *Backend) Requests() int { return int(b.requests.Load()) }

// ServeHTTP takes a worker, checks the password where one is needed, and runs
// git.
func (b *Backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.requests.Add(1)
	if !b.enter(r.Context()) {
		b.shed.Add(1)
		http.Error(w, "all workers are busy", http.StatusServiceUnavailable)
		return
	}
	defer func() { b.busy.Add(-1); <-b.workers }()
	user := ""
	if strings.Contains(r.URL.RequestURI(), "git-receive-pack") {
		if user = b.authenticate(r); user == "" {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "sign in", http.StatusUnauthorized)
			return
		}
	}
	b.runGit(w, r, user)
}

func (b *Backend) enter(ctx context.Context) bool {
	if b.cfg.QueueWait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, b.cfg.QueueWait)
		defer cancel()
	}
	select {
	case b.workers <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	raise(&b.peak, b.busy.Add(1))
	return true
}

// raise lets a maximum follow n.
func raise(m *atomic.Int64, n int64) {
	for old := m.Load(); n > old && !m.CompareAndSwap(old, n); old = m.Load() {
	}
}

func (b *Backend) authenticate(r *http.Request) string {
	user, password, ok := r.BasicAuth()
	if !ok {
		Pause(r.Context(), b.cfg.ChallengeDelay) // the server's own cost, not a wait for something
		return ""
	}
	b.checks.Add(1)
	raise(&b.peakChecking, b.checking.Add(1))
	defer b.checking.Add(-1)
	Pause(r.Context(), b.cfg.AuthDelay)
	if b.cfg.Account(user, password) {
		return user
	}
	return ""
}

// NewRepository makes a bare repository below root that holds files random
// files of size bytes, and returns its path.
func NewRepository(ctx context.Context, root, name string, files, size int) (string, error) {
	bare := root + "/" + name
	g := &Git{Home: root}
	if err := errors.Join(g.run(ctx, root, "init", "-q", "--bare", "-b", "main", bare),
		g.run(ctx, bare, "config", "http.receivepack", "true")); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(root, "seed-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	if err := g.run(ctx, work, "init", "-q", "-b", "main"); err != nil {
		return "", err
	}
	for i := range files {
		if err := writeRandom(fmt.Sprintf("%s/file%d", work, i), size); err != nil {
			return "", err
		}
	}
	return bare, errors.Join(g.run(ctx, work, "add", "."), g.run(ctx, work, "commit", "-q", "-m", "seed"),
		g.run(ctx, work, "push", "-q", bare, "main"),
		// One pack, as a server's maintenance leaves it: a clone costs reading, not compressing.
		g.run(ctx, bare, "repack", "-adq"))
}
