package cases

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// Runner runs cases against one built binary. The zero Scale means 1.
type Runner struct {
	Binary string
	Scale  float64   // factor on upper time bounds, for machines busier than those the bounds were written for
	Dir    string    // where working directories are made; "" is the system's
	Keep   bool      // leave the working directory of a failed case
	Trace  io.Writer // what happens, step by step; nil for silence
	Off    Switches
}

// Result is the verdict on one case.
type Result struct {
	ID       string
	Problems []string // empty: passed
	Took     time.Duration
	Dir      string // the working directory, when it was left
}

// Passed reports whether everything expected was seen.
func (r Result) Passed() bool { return len(r.Problems) == 0 }

// String is the line of the report.
func (r Result) String() string {
	if r.Passed() {
		return "PASS " + r.ID
	}
	return "FAIL " + r.ID + " " + strings.Join(strings.Fields(strings.Join(r.Problems, "; ")), " ")
}

// Run runs one case from an empty directory to the end of every process and
// server it started.
func (r *Runner) Run(ctx context.Context, c *Case) Result {
	began := time.Now()
	result := Result{ID: c.ID}
	dir, err := os.MkdirTemp(r.Dir, "case-"+safeName(c.ID)+"-")
	if err != nil {
		result.Problems = []string{err.Error()}
		return result
	}
	result.Problems = r.run(ctx, c, dir)
	result.Took = time.Since(began)
	if r.Keep && !result.Passed() {
		result.Dir = dir
		return result
	}
	if err := os.RemoveAll(dir); err != nil {
		result.Problems = append(result.Problems, "clean-up: "+err.Error())
	}
	return result
}

func safeName(id string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, id)
}

// caseLimit bounds one case, whatever its steps.
const caseLimit = 5 * time.Minute

func (r *Runner) run(ctx context.Context, c *Case, dir string) (problems []string) {
	ctx, cancel := context.WithTimeout(ctx, caseLimit)
	defer cancel()
	w, err := r.newWorld(ctx, c, dir)
	if w != nil {
		defer w.close()
	}
	if err != nil {
		return []string{err.Error()}
	}
	defer func() {
		if p := recover(); p != nil {
			problems = append(problems, fmt.Sprintf("runner panic: %v\n%s", p, debug.Stack()))
		}
	}()
	err = w.runSteps(ctx, c.Steps, true)
	if err == nil {
		err = w.conclude(ctx)
	}
	w.freeze()
	problems = w.verdict(ctx)
	if err != nil {
		problems = append(problems, err.Error())
	}
	return problems
}

// world is everything one case started and saw.
type world struct {
	runner  *Runner
	c       *Case
	dir     string
	setup   Setup
	gateway *gateway
	tokens  *tokens
	ledger  *ledger
	ups     map[string]*upstream
	portal  *portal
	adapter *adapter
	sampler *sampler

	stop    context.CancelFunc // ends every background client
	clients context.Context

	book  *book
	start snapshot
	end   snapshot
	disk  *smallDisk
}

// newWorld starts the upstreams and the gateway of a case.
func (r *Runner) newWorld(ctx context.Context, c *Case, dir string) (*world, error) {
	w := &world{runner: r, c: c, dir: dir, setup: c.Setup, ledger: newLedger(), ups: map[string]*upstream{}, book: newBook()}
	w.clients, w.stop = context.WithCancel(ctx)
	w.gateway = newGateway(r.Binary, filepath.Join(dir, "gateway"))
	if err := os.Mkdir(w.gateway.dir, 0o700); err != nil {
		return w, err
	}
	w.tokens = newTokens(w.gateway.plain)
	w.ledger.accept("Authorization Basic ZGV2OnB3") // dev:pw
	if err := w.startUpstreams(ctx); err != nil {
		return w, err
	}
	if err := w.mountSmallDisk(); err != nil {
		return w, err
	}
	w.adapter = &adapter{setup: w.setup, steps: c.Steps, gateway: w.gateway, tokens: w.tokens, addresses: map[string]string{}, off: r.Off}
	for name, u := range w.ups {
		w.adapter.addresses[name] = u.addr
	}
	if w.portal != nil {
		w.adapter.portal = w.portal.addr
	}
	return w, w.startGateway(ctx)
}

func (w *world) startGateway(ctx context.Context) error {
	caddyfile, err := w.adapter.write()
	if err != nil {
		return err
	}
	if err := w.gateway.start(ctx, caddyfile); err != nil {
		if w.validatesOnly() {
			return nil // the case is about a configuration that may be refused
		}
		return err
	}
	w.start = w.gateway.take(ctx, true)
	w.sampler = w.gateway.sample(ctx, w.c.Expect.Limits != nil)
	return nil
}

// validatesOnly reports whether the case's configuration may be rejected.
func (w *world) validatesOnly() bool {
	return len(w.c.Expect.Config) > 0
}

func (w *world) startUpstreams(ctx context.Context) error {
	names := map[string]string{gitUpstream: "", ciUpstream: ""}
	for name, text := range w.setup.Upstreams {
		names[name] = text
	}
	usesGit := false
	for _, name := range sortedKeys(names) {
		var normal behaviour
		if text := names[name]; text != "" {
			var err error
			if normal, err = parseBehaviour(text); err != nil {
				return err
			}
		}
		usesGit = usesGit || normal.has(doGit)
		u, err := newUpstream(name, w.ledger, normal)
		if err != nil {
			return err
		}
		w.ups[name] = u
	}
	if w.setup.Front != nil {
		w.portal = newPortal()
	}
	if !usesGit && !anyStep(w.c.Steps, func(s *Step) bool { return strings.Contains(s.Upstream+s.Behaviour, string(doGit)) }) {
		return nil
	}
	g, err := newGitServer(ctx, filepath.Join(w.dir, "repositories"), repositoriesOf(w.c.Steps))
	for _, u := range w.ups {
		u.git = g
	}
	return err
}

// repositoriesOf are the repositories that the steps name, and one more.
func repositoriesOf(steps []Step) []string {
	found := map[string]bool{"o/r.git": true}
	anyStep(steps, func(s *Step) bool {
		for _, text := range append(s.PathEach, s.Path, string(s.Cmd)) {
			if before, _, ok := strings.Cut(text, ".git"); ok {
				before = before[strings.LastIndexAny(before, " \"")+1:]
				if _, rest, ok := strings.Cut(before, "{{gw}}"); ok {
					before = rest
				}
				if name := strings.Trim(before, "/"); name != "" && !strings.ContainsAny(name, ":{%.") {
					found[name+".git"] = true
				}
			}
		}
		return false
	})
	return sortedKeys(found)
}

// close ends everything the case started.
func (w *world) close() {
	w.stop()
	if w.sampler != nil {
		w.sampler.end()
	}
	w.gateway.kill()
	w.book.closeConnections()
	for _, u := range w.ups {
		u.close()
	}
	if w.portal != nil {
		w.portal.close()
	}
	w.unmountSmallDisk()
}

func (w *world) trace(format string, args ...any) {
	if w.runner.Trace != nil {
		fmt.Fprintf(w.runner.Trace, "%s %s: %s\n", time.Now().Format("15:04:05.000"), w.c.ID, fmt.Sprintf(format, args...))
	}
}

// scaled is an upper time bound on this machine.
func (r *Runner) scaled(ms float64) time.Duration {
	if r.Scale > 0 {
		ms *= r.Scale
	}
	return millis(ms)
}
