package caddymodule

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-admission/gateway/admission"
)

// position is a place in a Caddyfile; the zero position is unknown (JSON).
type position struct {
	file string
	line int
}

func (p position) String() string {
	if p.file == "" && p.line == 0 {
		return ""
	}
	return fmt.Sprintf("%s:%d", p.file, p.line)
}

// mistake is one thing wrong with a configuration: where, which setting, what
// was found and what is allowed.
type mistake struct {
	admission.Problem
	at position
}

// Error implements error.
func (m mistake) Error() string {
	if at := m.at.String(); at != "" {
		return at + ": " + m.Problem.Error()
	}
	return m.Problem.Error()
}

func problemf(path, allowed, found string, args ...any) admission.Problem {
	return admission.Problem{Path: path, Found: fmt.Sprintf(found, args...), Allowed: allowed}
}

// joinMistakes makes one error of all mistakes that are not warnings, in the
// order of their lines, or nil.
func joinMistakes(list []mistake) error {
	var errs []error
	slices.SortStableFunc(list, func(a, b mistake) int { return cmp.Compare(a.at.line, b.at.line) })
	for _, m := range list {
		if !m.Warning {
			errs = append(errs, m)
		}
	}
	return errors.Join(errs...)
}

// locate finds the position of the setting that path names: of the setting
// itself where it was written, else of the nearest block around it.
func locate(where map[string]position, path string) position {
	for {
		if at, ok := where[path]; ok {
			return at
		}
		i := strings.LastIndexByte(path, ' ')
		if i < 0 {
			return where[""]
		}
		path = path[:i]
	}
}

func quoted(args []string) string {
	if len(args) == 0 {
		return "nothing"
	}
	q := make([]string, len(args))
	for i, a := range args {
		q[i] = fmt.Sprintf("%q", a)
	}
	return strings.Join(q, " ")
}
