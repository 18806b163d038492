package cases

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/shlex"
)

// gitClient runs the real git, n times, each in a repository of its own with
// one commit (and a file of incompressible bytes when the step asks).
func (w *world) gitClient(ctx context.Context, s *Step) error {
	args, err := gitArguments(s.Cmd)
	if err != nil {
		return err
	}
	round := w.book.begin(s.Name)
	run := func() error {
		defer w.book.end(s.Name)
		_, workers := s.pace()
		slots := make(chan struct{}, workers)
		var group sync.WaitGroup
		errs := make([]error, s.count())
		for i := range s.count() {
			slots <- struct{}{}
			group.Go(func() {
				defer func() { <-slots }()
				errs[i] = w.runGit(ctx, s, args, i, round)
			})
		}
		group.Wait()
		return errors.Join(errs...)
	}
	if s.Background {
		go run()
		pause(ctx, 200*time.Millisecond)
		return nil
	}
	return run()
}

func gitArguments(raw json.RawMessage) ([]string, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		args, err := shlex.Split(text)
		if len(args) > 0 && args[0] == "git" {
			args = args[1:]
		}
		return args, err
	}
	var list []string
	err := json.Unmarshal(raw, &list)
	return list, err
}

func (w *world) runGit(ctx context.Context, s *Step, args []string, i, round int) error {
	dir := filepath.Join(w.dir, fmt.Sprintf("work-%s-%d-%d", safeName(s.Name), round, i))
	if err := w.workRepository(ctx, dir, s.RepoWithBlob); err != nil {
		return err
	}
	full, err := w.gitOptions(s, i)
	if err != nil {
		return err
	}
	for _, a := range args {
		a, err := w.tokens.expand(a, scope{i: i})
		if err != nil {
			return err
		}
		full = append(full, a)
	}
	cmd := gitCommand(ctx, dir, full...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	e := newExchange(&wire{id: fmt.Sprintf("%s#%d.%d", s.Name, round, i)})
	w.book.note(s.Name, e)
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	e.change(func() { e.exit, e.stdout, e.stderr = cmd.ProcessState.ExitCode(), out.String(), errs.String() })
	e.finish(nil)
	return nil
}

// gitOptions carry what the step says about the client's requests.
func (w *world) gitOptions(s *Step, i int) ([]string, error) {
	var options []string
	for _, h := range s.Headers {
		options = append(options, "-c", "http.extraHeader="+h.Name+": "+h.Value)
	}
	if s.From != "" {
		options = append(options, "-c", "http.extraHeader=X-Forwarded-For: "+s.From)
	}
	for k, o := range options {
		var err error
		if options[k], err = w.tokens.expand(o, scope{i: i}); err != nil {
			return nil, err
		}
	}
	return options, nil
}

func (w *world) workRepository(ctx context.Context, dir string, blob int64) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), randomBytes(max(blob, 16)), 0o600); err != nil {
		return err
	}
	for _, args := range [][]string{{"init", "--quiet", "--initial-branch=main"}, {"add", "file"}, {"commit", "--quiet", "-m", "work"}} {
		if out, err := gitCommand(ctx, dir, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}
