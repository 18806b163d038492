package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/google/shlex"
)

func mkdir(dir string) error { return os.MkdirAll(dir, 0o700) }

// admin asks the gateway as an operator would: a command of the binary.
//
//	status             the live table
//	explain METHOD URL the class of a request and what limits it
//	explain-refusal    what the gateway recorded about a refused delivery (of)
//	deliveries …       list, show, replay, drop, export
func (w *world) admin(ctx context.Context, s *Step) error {
	var cmd string
	if err := json.Unmarshal(s.Cmd, &cmd); err != nil {
		return fmt.Errorf("cmd: %w", err)
	}
	words, err := shlex.Split(cmd)
	if err != nil || len(words) == 0 {
		return fmt.Errorf("cmd %q: %w", cmd, err)
	}
	var args []string
	switch words[0] {
	case "status":
		args = append([]string{"status", "--json"}, words[1:]...)
	case "explain":
		if args, err = w.explain(words[1:]); err != nil {
			return err
		}
	case "explain-refusal":
		return w.explainRefusal(ctx, s)
	case "deliveries":
		args = append(words, "--json")
	case "list", "show", "replay", "drop", "export":
		args = append(append([]string{"deliveries"}, words...), "--json")
	default:
		return fmt.Errorf("unknown admin command %q", cmd)
	}
	return w.adminCommand(ctx, s, args)
}

func (w *world) adminCommand(ctx context.Context, s *Step, args []string) error {
	full := append([]string{"admission"}, args...)
	full = append(full, "--address", w.gateway.admin)
	out, errs, err := w.gateway.command(ctx, full...)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, clip([]byte(errs)))
	}
	w.book.print(s.Name, output{text: out, err: err})
	return nil
}

// explain completes a path to the URL of the case's site.
func (w *world) explain(words []string) ([]string, error) {
	if len(words) < 2 {
		return nil, fmt.Errorf("explain wants METHOD URL")
	}
	u, err := url.Parse(words[1])
	if err != nil {
		return nil, err
	}
	target := words[1]
	if u.Host == "" {
		target = "http://" + w.gateway.plain + target
	}
	return append([]string{"explain", "--json", words[0], target}, words[2:]...), nil
}

// explainRefusal finds the record of a delivery that step s.Of sent.
func (w *world) explainRefusal(ctx context.Context, s *Step) error {
	ids := map[string]bool{}
	for _, e := range w.book.of(s.Of) {
		ids[e.wire.deliveryID()] = true
	}
	out, errs, err := w.gateway.command(ctx, "admission", "deliveries", "list", "--refused", "--json", "--address", w.gateway.admin)
	if err != nil {
		w.book.print(s.Name, output{err: fmt.Errorf("%w: %s", err, clip([]byte(errs)))})
		return nil
	}
	var all any
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		w.book.print(s.Name, output{err: fmt.Errorf("%w: %s", err, clip([]byte(out)))})
		return nil
	}
	for _, record := range objects(all) {
		for id := range ids {
			if raw, _ := json.Marshal(record); id != "" && strings.Contains(string(raw), id) {
				w.book.print(s.Name, output{text: string(raw)})
				return nil
			}
		}
	}
	w.book.print(s.Name, output{err: fmt.Errorf("no record of the deliveries of step %s in %s", s.Of, clip([]byte(out)))})
	return nil
}

// objects are the innermost JSON objects of a document.
func objects(v any) (out []map[string]any) {
	switch v := v.(type) {
	case map[string]any:
		for _, inner := range v {
			out = append(out, objects(inner)...)
		}
		if len(out) == 0 {
			out = append(out, v)
		}
	case []any:
		for _, inner := range v {
			out = append(out, objects(inner)...)
		}
	}
	return out
}
