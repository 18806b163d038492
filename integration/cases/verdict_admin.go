package cases

import (
	"encoding/json"
	"fmt"
	"strings"
)

// config checks the answer to a configuration.
func (v *verdict) config(name string, x ConfigExpect) {
	o, ok := v.w.book.outputs[name]
	where := "config " + name
	if !ok {
		v.differ(where, "an answer", "none")
		return
	}
	rejected := o.err != nil
	if x.Rejected != nil && rejected != *x.Rejected {
		v.differ(where, fmt.Sprintf("rejected: %v", *x.Rejected), "%v", rejected)
	}
	if x.Accepted != nil && rejected == *x.Accepted {
		v.differ(where, fmt.Sprintf("accepted: %v", *x.Accepted), "%v: %s", !rejected, clip([]byte(o.text)))
	}
	if x.RejectedOrWarns != "" && !(rejected && speaksOf(o.text, x.RejectedOrWarns)) && !warnsOf(o.text, x.RejectedOrWarns) {
		v.differ(where, "rejected or a warning: "+x.RejectedOrWarns, "%s", clip([]byte(strings.Join(warnings(o.text), "\n"))))
	}
	if x.Warns != "" && !warnsOf(o.text, x.Warns) {
		v.differ(where, "a warning: "+x.Warns, "%s", clip([]byte(strings.Join(warnings(o.text), "\n"))))
	}
	for _, part := range x.Contains {
		if !strings.Contains(o.text, part) {
			v.differ(where, fmt.Sprintf("%q inside", part), "%s", clip([]byte(o.text)))
		}
	}
	if x.Each != "" {
		v.variants(where, x.Each, o.text)
	}
}

func warnsOf(output, about string) bool {
	for _, line := range warnings(output) {
		if speaksOf(line, about) {
			return true
		}
	}
	return false
}

// speaksOf reports whether a text has at least two of the longer words of what
// it should be about, so that a product may say it in its own words.
func speaksOf(text, about string) bool {
	text = strings.ToLower(text)
	hits, words := 0, 0
	for _, word := range strings.Fields(strings.ToLower(about)) {
		if word = strings.Trim(word, ".,;:"); len(word) < 5 {
			continue
		}
		words++
		hits += one(strings.Contains(text, word))
	}
	return hits >= min(2, words) && words > 0
}

const enforcedOrWarns = "enforced, or a warning that names the unreachable handler"

// variants checks that each way to write the site either limits or warns.
func (v *verdict) variants(where, each, text string) {
	if each != enforcedOrWarns {
		v.differ(where, "a known expectation", "%q", each)
		return
	}
	var list []variantVerdict
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) == 0 {
		v.differ(where, "variants", "%s", clip([]byte(text)))
		return
	}
	for _, one := range list {
		if !one.Enforced && !one.Warned {
			v.differ(where+" "+one.Variant, enforcedOrWarns, "neither: %s", clip([]byte(strings.Join(warnings(one.Output), "\n"))))
		}
	}
}

// admin checks the answer of an operator's command.
func (v *verdict) admin(name string, raw json.RawMessage) {
	if name == "repository_lane" {
		v.lanes(raw)
		return
	}
	where := "admin " + name
	var x AdminExpect
	if err := strict(raw, &x); err != nil {
		v.differ(where, "known words", "%v", err)
		return
	}
	o, ok := v.w.book.outputs[name]
	if !ok || o.err != nil {
		v.differ(where, "an answer", "%v", o.err)
		return
	}
	var answer any
	if err := json.Unmarshal([]byte(o.text), &answer); err != nil {
		v.differ(where, "JSON", "%s", clip([]byte(o.text)))
		return
	}
	for _, field := range x.Fields {
		if len(find(answer, field)) == 0 {
			v.differ(where, "field "+field, "%s", clip([]byte(o.text)))
		}
	}
	for _, part := range x.Contains {
		if !strings.Contains(o.text, part) {
			v.differ(where, fmt.Sprintf("%q inside", part), "%s", clip([]byte(o.text)))
		}
	}
	for _, field := range sortedKeys(x.Equals) {
		found := find(answer, field)
		if len(found) == 0 || fmt.Sprint(found[0]) != x.Equals[field] {
			v.differ(where+" "+field, x.Equals[field], "%v", found)
		}
	}
}

// lanes checks in which repository's lane a delivery was put.
func (v *verdict) lanes(raw json.RawMessage) {
	var want map[string]string
	if err := json.Unmarshal(raw, &want); err != nil {
		v.differ("repository lane", "names by step", "%v", err)
		return
	}
	for _, step := range sortedKeys(want) {
		got := ""
		for _, c := range v.w.ledger.seen(func(c *call) bool { return c.request != nil && c.request.step == step }) {
			got = c.repository
		}
		if got != want[step] {
			v.differ("repository lane of "+step, want[step], "%s", orNone(got))
		}
	}
}
