package cases

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// Load reads a file of cases. Every case is decoded strictly and checked for
// words the runner does not know; the errors of all cases are joined, each
// with the case and the step it is in.
func Load(path string) ([]Case, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Note  string            `json:"note"`
		Cases []json.RawMessage `json:"cases"`
	}
	if strings.HasPrefix(strings.TrimSpace(string(raw)), "[") {
		err = json.Unmarshal(raw, &file.Cases)
	} else {
		err = strict(raw, &file)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(file.Cases) == 0 {
		return nil, fmt.Errorf("%s: no cases", path)
	}
	var list []Case
	var errs []error
	for i, one := range file.Cases {
		c, err := Parse(one)
		if c.ID == "" {
			c.ID = fmt.Sprintf("#%d", i)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("case %s: %w", c.ID, err))
		}
		if slices.ContainsFunc(list, func(o Case) bool { return o.ID == c.ID }) {
			errs = append(errs, fmt.Errorf("case %s: written twice", c.ID))
		}
		list = append(list, c)
	}
	return list, errors.Join(errs...)
}

// Parse decodes and checks one case. The returned case holds at least the id
// when that could be read.
func Parse(raw []byte) (Case, error) {
	var head struct {
		ID    string
		Setup json.RawMessage
	}
	_ = json.Unmarshal(raw, &head) // only for the name in errors
	c := Case{ID: head.ID}
	if err := strict(raw, &c); err != nil {
		return Case{ID: head.ID}, err
	}
	c.setup = head.Setup
	return c, check(&c)
}

// UnmarshalJSON implements json.Unmarshaler. A field that the step's operation
// does not read is an error.
func (s *Step) UnmarshalJSON(raw []byte) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(raw, &keys); err != nil {
		return err
	}
	type plain Step
	p := plain{Fields: map[string]struct{}{}}
	if err := json.Unmarshal(keys["op"], &p.Op); err != nil {
		return fmt.Errorf("step op: %w", err)
	}
	allowed, known := stepFields[p.Op]
	if !known {
		return fmt.Errorf("unknown step %q", p.Op)
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !allowed[key] {
			return fmt.Errorf("step %s: unknown field %q", p.Op, key)
		}
		p.Fields[key] = struct{}{}
	}
	if err := strict(raw, &p); err != nil {
		return fmt.Errorf("step %s: %w", p.Op, err)
	}
	*s = Step(p)
	return nil
}

func (s *Step) wrote(field string) bool {
	_, ok := s.Fields[field]
	return ok
}
