package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// variantChecks are the Caddyfile variants by their name in a case: how the
// site is written, and a path on which the limits are meant to hold.
type variantCheck struct {
	site string // with {admission} and {git} to be filled in
	path string
}

var variantChecks = map[string][]variantCheck{
	"directive after reverse_proxy": {
		{"reverse_proxy {git}\n\tadmission", "/o/r.git"},
		{"route {\n\t\treverse_proxy {git}\n\t\tadmission\n\t}", "/o/r.git"},
	},
	"inside route /api/* with wildcard missing": {{"route /api {\n\t\tadmission\n\t}\n\treverse_proxy {git}", "/o/r.git"}},
	"inside handle_path":                        {{"handle_path /git/* {\n\t\tadmission\n\t\treverse_proxy {git}\n\t}", "/git/o/r.git"}},
	"no order option":                           {{"admission\n\treverse_proxy {git}", "/o/r.git"}},
}

// validateConfig checks the case's configuration, or each of its variants, in
// a process of its own.
func (w *world) validateConfig(ctx context.Context, s *Step) error {
	switch s.Each {
	case "":
	case "caddyfile_variants":
		return w.validateVariants(ctx, s)
	default:
		return fmt.Errorf("unknown each %q", s.Each)
	}
	before := *w.adapter
	defer func() { *w.adapter = before }()
	if err := w.change(s.Change); err != nil {
		return err
	}
	if len(s.Config) > 0 {
		if err := w.change(s.Config); err != nil {
			return err
		}
	}
	caddyfile, err := w.adapter.write()
	if err != nil {
		return err
	}
	text, err := w.gateway.validate(ctx, safeName(s.Name), caddyfile)
	if err != nil && err != errRejected {
		return err
	}
	w.book.print(s.Name, output{text, err})
	return nil
}

// variantVerdict is what became of one variant.
type variantVerdict struct {
	Variant  string
	Enforced bool
	Warned   bool
	Output   string
}

func (w *world) validateVariants(ctx context.Context, s *Step) error {
	var verdicts []variantVerdict
	for _, name := range w.setup.Variants {
		checks, ok := variantChecks[name]
		if !ok {
			return fmt.Errorf("unknown caddyfile variant %q", name)
		}
		for k, check := range checks {
			v, err := w.tryVariant(ctx, fmt.Sprintf("%s-%d", name, k), check)
			if err != nil {
				return fmt.Errorf("variant %q: %w", name, err)
			}
			verdicts = append(verdicts, v)
		}
	}
	raw, err := json.Marshal(verdicts)
	w.book.print(s.Name, output{text: string(raw)})
	return err
}

// tryVariant validates a variant, then runs it and looks whether a git request
// passes the handler.
func (w *world) tryVariant(ctx context.Context, name string, check variantCheck) (variantVerdict, error) {
	v := variantVerdict{Variant: name}
	git := fmt.Sprintf("%s {\n\t\theader_up %s {http.admission.class}\n\t}", w.ups[gitUpstream].addr, classHeader)
	site := strings.NewReplacer("{git}", git).Replace(check.site)
	g := newGateway(w.gateway.binary, w.gateway.dir)
	caddyfile := fmt.Sprintf("{\n\tadmin %s\n\tauto_https off\n\tpersist_config off\n\tgrace_period 1s\n}\nhttp://:%s {\n\tbind 127.0.0.1\n\t%s\n}\n",
		g.admin, port(g.plain), site)
	text, err := w.gateway.validate(ctx, safeName(name), caddyfile)
	v.Output = text
	if err == errRejected {
		v.Warned = namesHandler.MatchString(text)
		return v, nil
	}
	if err != nil {
		return v, err
	}
	v.Warned = warnsUnreachable(text)
	main := w.gateway
	g.dir = main.file("variant-" + safeName(name))
	if err := mkdir(g.dir); err != nil {
		return v, err
	}
	if err := g.start(ctx, caddyfile); err != nil {
		return v, err
	}
	defer g.kill()
	w.gateway = g
	defer func() { w.gateway = main }()
	b, err := w.launch(&Step{Op: "req", Name: "variant " + name, Path: check.path + "/info/refs?service=git-upload-pack"})
	if err != nil {
		return v, err
	}
	<-b.done
	v.Enforced = b.err == nil && len(b.list) == 1 && w.classOf(b.list[0]) != ""
	return v, b.err
}

var namesHandler = regexp.MustCompile(`(?i)admission`)

// warnsUnreachable looks for a warning that names the handler and says that
// requests do not come to it.
func warnsUnreachable(log string) bool {
	for _, line := range warnings(log) {
		if namesHandler.MatchString(line) && unreachable.MatchString(line) {
			return true
		}
	}
	return false
}

var unreachable = regexp.MustCompile(`(?i)unreachable|not reached|cannot be reached|never reached|can ?not reach|does not reach|bypass|only for|not limited|without passing`)

// warnings are the lines of a JSON or console log at level warn or error.
func warnings(log string) (out []string) {
	for _, line := range strings.Split(log, "\n") {
		if regexp.MustCompile(`(?i)"level":"(warn|error)"|\bWARN(ING)?\b|\bERROR\b|^Error:`).MatchString(line) {
			out = append(out, line)
		}
	}
	return out
}
