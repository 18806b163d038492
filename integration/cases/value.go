package cases

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Range is an expectation on a number. A plain number means equality. The zero
// Range allows everything.
type Range struct {
	Min, Max, Eq *float64
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Range) UnmarshalJSON(raw []byte) error {
	var n float64
	if json.Unmarshal(raw, &n) == nil {
		r.Eq = &n
		return nil
	}
	var o struct {
		Min, Max, Eq *float64
	}
	if err := strict(raw, &o); err != nil {
		return err
	}
	r.Min, r.Max, r.Eq = o.Min, o.Max, o.Eq
	return nil
}

// Set reports whether anything is expected.
func (r Range) Set() bool { return r.Min != nil || r.Max != nil || r.Eq != nil }

// Holds reports whether n is allowed.
func (r Range) Holds(n float64) bool {
	return (r.Min == nil || n >= *r.Min) && (r.Max == nil || n <= *r.Max) && (r.Eq == nil || n == *r.Eq)
}

func (r Range) String() string {
	var parts []string
	for _, p := range []struct {
		word string
		n    *float64
	}{{"exactly", r.Eq}, {"at least", r.Min}, {"at most", r.Max}} {
		if p.n != nil {
			parts = append(parts, p.word+" "+number(*p.n))
		}
	}
	if len(parts) == 0 {
		return "anything"
	}
	return strings.Join(parts, ", ")
}

func number(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// Strings is a string or a list of strings.
type Strings []string

// UnmarshalJSON implements json.Unmarshaler.
func (s *Strings) UnmarshalJSON(raw []byte) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*s = Strings{one}
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(s))
}

// Ints is a whole number or a list of them.
type Ints []int

// UnmarshalJSON implements json.Unmarshaler.
func (s *Ints) UnmarshalJSON(raw []byte) error {
	var one int
	if json.Unmarshal(raw, &one) == nil {
		*s = Ints{one}
		return nil
	}
	return json.Unmarshal(raw, (*[]int)(s))
}

// Headers are header fields in writing order; a name may repeat. In JSON they
// are an object of strings or lists of strings, or a list of "Name: value"
// lines or [name, value] pairs.
type Headers []Header

// Header is one field.
type Header struct{ Name, Value string }

// UnmarshalJSON implements json.Unmarshaler.
func (h *Headers) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '{' {
		return h.fromObject(raw)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	for _, item := range list {
		var line string
		if json.Unmarshal(item, &line) == nil {
			name, value, ok := strings.Cut(line, ":")
			if !ok {
				return fmt.Errorf("header line %q has no colon", line)
			}
			*h = append(*h, Header{name, strings.TrimPrefix(value, " ")})
			continue
		}
		var pair []string
		if err := json.Unmarshal(item, &pair); err != nil || len(pair) != 2 {
			return fmt.Errorf("header %s is neither a line nor a pair", item)
		}
		*h = append(*h, Header{pair[0], pair[1]})
	}
	return nil
}

func (h *Headers) fromObject(raw []byte) error {
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	if _, err := dec.Token(); err != nil {
		return err
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		var values Strings
		if err := dec.Decode(&values); err != nil {
			return fmt.Errorf("header %v: %w", name, err)
		}
		for _, v := range values {
			*h = append(*h, Header{name.(string), v})
		}
	}
	return nil
}

// Get returns the first value of a field and whether there is one.
func (h Headers) Get(name string) (string, bool) {
	for _, f := range h {
		if strings.EqualFold(f.Name, name) {
			return f.Value, true
		}
	}
	return "", false
}

// parseSize reads "64KiB", "3MiB", "1GiB", "65536" or "100kB" as bytes.
func parseSize(s string) (int64, error) {
	units := []struct {
		suffix string
		factor int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1000}, {"MB", 1e6}, {"B", 1}, {"", 1}}
	for _, u := range units {
		digits, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		if n, err := strconv.ParseInt(digits, 10, 64); err == nil && n >= 0 {
			return n * u.factor, nil
		}
	}
	return 0, fmt.Errorf("%q is no size", s)
}

func millis(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }
