package cases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// operate changes configuration or process state.
func (w *world) operate(ctx context.Context, s *Step) error {
	switch s.Op {
	case "reload":
		return w.reload(ctx, s)
	case "kill9":
		if w.sampler != nil {
			w.sampler.end()
		}
		w.gateway.kill()
		return nil
	case "start":
		if err := w.change(s.Change); err != nil {
			return err
		}
		first := w.start
		err := w.startGateway(ctx)
		w.start = first
		return err
	case "corrupt_state":
		return w.corrupt(s)
	}
	if w.disk == nil {
		return fmt.Errorf("there is no small disk")
	}
	if s.Op == "disk_full" {
		return w.disk.fill()
	}
	return w.disk.free()
}

// change merges a change into the setup. Beside the words of a setup it knows
// "unrelated_site" (add or remove) and "invalid" (true).
func (w *world) change(raw json.RawMessage) error {
	w.adapter.invalid = false
	if len(raw) == 0 {
		return nil
	}
	var words map[string]json.RawMessage
	if err := json.Unmarshal(raw, &words); err != nil {
		return err
	}
	if text, ok := words["unrelated_site"]; ok {
		switch strings.Trim(string(text), `"`) {
		case "add", "true", "change":
			w.adapter.unrelated = freeAddress()
		case "remove", "false":
			w.adapter.unrelated = ""
		default:
			return fmt.Errorf("unknown unrelated_site %s", text)
		}
		delete(words, "unrelated_site")
	}
	if text, ok := words["invalid"]; ok {
		w.adapter.invalid = string(text) == "true"
		delete(words, "invalid")
	}
	if len(words) == 0 {
		return nil
	}
	merged, err := mergeJSON(w.c.setup, words)
	if err != nil {
		return err
	}
	var setup Setup
	if err := strict(merged, &setup); err != nil {
		return fmt.Errorf("change: %w", err)
	}
	w.c.setup = merged
	w.adapter.setup = setup
	return nil
}

// mergeJSON lays words over an object, going into objects.
func mergeJSON(base json.RawMessage, words map[string]json.RawMessage) (json.RawMessage, error) {
	object := map[string]json.RawMessage{}
	if len(base) > 0 {
		if err := json.Unmarshal(base, &object); err != nil {
			return nil, err
		}
	}
	for key, value := range words {
		var inner map[string]json.RawMessage
		if json.Unmarshal(value, &inner) == nil && len(object[key]) > 0 && object[key][0] == '{' {
			merged, err := mergeJSON(object[key], inner)
			if err != nil {
				return nil, err
			}
			value = merged
		}
		object[key] = value
	}
	return json.Marshal(object)
}

// reload loads the changed configuration, n times. An invalid one must be
// rejected, any other accepted.
func (w *world) reload(ctx context.Context, s *Step) error {
	if err := w.change(s.Change); err != nil {
		return err
	}
	for i := range max(1, s.N) {
		if i > 0 && s.GapMS > 0 && !pause(ctx, millis(s.GapMS)) {
			return ctx.Err()
		}
		caddyfile, err := w.adapter.write()
		if err != nil {
			return err
		}
		if i > 0 {
			caddyfile += strings.Repeat("# again\n", i) // an unchanged configuration would not be loaded
		}
		err = w.gateway.load(ctx, caddyfile)
		if w.adapter.invalid {
			if err == nil {
				return errors.New("an invalid configuration was accepted")
			}
			err = nil
		}
		w.book.print(s.Name, output{err: err})
		if err != nil {
			return err
		}
	}
	w.adapter.invalid = false
	return nil
}

// corrupt damages what the gateway keeps on disk: the files that a glob below
// its directory names, or everything it keeps.
func (w *world) corrupt(s *Step) error {
	pattern, part := s.File, ""
	switch s.What {
	case "", "all", "state":
	case "spool", "storage", "data":
		part = s.What + "/"
	default:
		pattern = s.What
	}
	var files []string
	err := filepath.WalkDir(w.gateway.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(w.gateway.dir, path)
		if err != nil {
			return err
		}
		kept := strings.HasPrefix(rel, "spool/") || strings.HasPrefix(rel, "storage/") || strings.HasPrefix(rel, "data/")
		if part != "" {
			kept = strings.HasPrefix(rel, part)
		}
		if named, _ := filepath.Match(pattern, filepath.Base(rel)); kept && (pattern == "" || named) {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("nothing is kept that could be damaged")
	}
	for _, path := range files {
		if err := damage(path, s.How); err != nil {
			return err
		}
	}
	return nil
}

// damage spoils one file. The default overwrites its second half.
func damage(path, how string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	half := len(raw) / 2
	switch how {
	case "", "garbage", "tail":
		raw = append(raw[:half:half], randomBytes(int64(len(raw)-half))...)
	case "truncate":
		raw = raw[:half]
	case "zero", "zeros":
		clear(raw[half:])
	case "empty":
		raw = nil
	case "flip":
		for i := 0; i < len(raw); i += max(1, len(raw)/16) {
			raw[i] ^= 0x41
		}
	case "delete", "remove":
		return os.Remove(path)
	default:
		return fmt.Errorf("unknown how %q", how)
	}
	return os.WriteFile(path, raw, 0o600)
}

// classify sends every line of the table and notes the class it got. Each line
// comes from an address of its own and finds a repository that never answered.
func (w *world) classify(ctx context.Context, s *Step) error {
	u := w.ups[gitUpstream]
	u.mu.Lock()
	normal := u.normal
	u.mu.Unlock()
	if err := u.become(behaviour{{do: doStatus, status: 404}}); err != nil {
		return err
	}
	defer u.become(normal)
	for i, line := range s.Cases {
		if len(line) != 3 {
			return fmt.Errorf("line %d: want method, target, class", i)
		}
		one := &Step{Op: "req", Name: fmt.Sprintf("%s.%d", s.Name, i), Method: line[0], Path: line[1], From: fmt.Sprintf("192.0.2.%d", i%250+1)}
		b, err := w.launch(one)
		if err != nil {
			return err
		}
		select {
		case <-b.done:
		case <-time.After(30 * time.Second):
			return fmt.Errorf("line %d does not end", i)
		case <-ctx.Done():
			return ctx.Err()
		}
		if b.err != nil {
			return b.err
		}
		w.book.classes = append(w.book.classes, classified{line[0], line[1], line[2], w.classOf(b.list[0])})
	}
	return nil
}

// classOf is the neutral class of an exchange, or "reject" when its shape was
// refused, or "" when nothing tells.
func (w *world) classOf(e *exchange) string {
	if e.refused() {
		if e.status == 429 || e.status == 503 {
			return neutralClass(e.refusal("class"))
		}
		return "reject"
	}
	calls := w.ledger.seen(func(c *call) bool { return c.request != nil && c.request.id == e.wire.id && !c.question })
	for _, c := range calls {
		if c.class != "" {
			return neutralClass(c.class)
		}
	}
	return ""
}
