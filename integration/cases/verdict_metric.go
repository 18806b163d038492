package cases

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// metric checks one number of the gateway.
func (v *verdict) metric(m MetricExpect) {
	where := "metric " + m.Name
	for _, part := range []string{m.Class, m.Bucket, m.Flow} {
		if part != "" {
			where += " " + part
		}
	}
	if m.Exposed {
		v.exposed(where, m)
		return
	}
	n, err := v.number(m)
	if err != nil {
		v.differ(where, "a number", "%v", err)
		return
	}
	want := Range{m.Min, m.Max, m.Eq}
	if want.Set() && !want.Holds(n) {
		v.differ(where, want.String(), "%s", number(n))
	}
	if m.MaxGrowth != nil {
		before, err := v.read(m, &v.w.start)
		if err != nil {
			v.differ(where, "a number at the start", "%v", err)
		} else if n-before > *m.MaxGrowth {
			v.differ(where, "growth of at most "+number(*m.MaxGrowth), "%s after %s", number(n), number(before))
		}
	}
}

// at is the snapshot that an expectation reads.
func (v *verdict) at(m MetricExpect) (*snapshot, error) {
	s := v.w.end
	if m.At != "" && m.At != "end" {
		taken, ok := v.w.book.snapshots[m.At]
		if !ok {
			return nil, fmt.Errorf("nothing was read at %q", m.At)
		}
		s = taken
	}
	return &s, s.err
}

func (v *verdict) number(m MetricExpect) (float64, error) {
	switch m.Name {
	case "peak_in_flight":
		return v.peak(m)
	case "label_values_from_request":
		return v.requestLabels(m)
	case "accepted_minus_delivered_minus_depth":
		s, err := v.at(m)
		if err != nil {
			return 0, err
		}
		return s.balance, s.balanceErr
	}
	s, err := v.at(m)
	if err != nil {
		return 0, err
	}
	return v.read(m, s)
}

// read takes one number out of a snapshot.
func (v *verdict) read(m MetricExpect, s *snapshot) (float64, error) {
	if s.err != nil {
		return 0, s.err
	}
	switch m.Name {
	case "in_flight", "queue_depth", "refused_total", "abandoned":
		return classNumber(m, s)
	case "tracked_keys":
		return stateNumber(s, "tracked")
	case "key_table_full_total":
		return stateNumber(s, "overflow", "overflowed", "overflows", "table_full", "key_table_full_total")
	case "depth":
		return stateNumber(s, "depth", "kept", "entries")
	case "tokens_spent":
		return tokensSpent(m, s)
	case "series_total":
		return seriesTotal(m, s)
	}
	return 0, fmt.Errorf("unknown metric %q", m.Name)
}

func classNumber(m MetricExpect, s *snapshot) (float64, error) {
	names := []string{m.Class}
	if m.Class == "" {
		names = sortedKeys(productClasses)
	}
	sum := 0.0
	for _, name := range names {
		c, err := s.class(name)
		if err != nil {
			return 0, err
		}
		switch m.Name {
		case "in_flight":
			sum += float64(c.InUse)
		case "queue_depth":
			sum += float64(c.Waiting)
		case "abandoned":
			sum += float64(c.Abandoned)
		default:
			sum += float64(c.refused())
		}
	}
	return sum, nil
}

func stateNumber(s *snapshot, keys ...string) (float64, error) {
	for _, key := range keys {
		if n, ok := findNumber(s.raw, key); ok {
			return n, nil
		}
	}
	return 0, fmt.Errorf("the state has no %q", keys[0])
}

// peak is the larger of what the upstream saw at once in the class and what
// the gateway reported; for one flow only the upstream can tell.
func (v *verdict) peak(m MetricExpect) (float64, error) {
	var from, to time.Time
	if m.During != "" {
		if w := v.w.book.windows[m.During]; w != nil {
			from, to = w.from, w.to
		}
	}
	calls := v.w.ledger.seen(func(c *call) bool {
		return (m.Class == "" || neutralClass(c.class) == m.Class) && (m.Flow == "" || flowOf(c) == m.Flow)
	})
	most := peak(calls, from, to)
	if m.Flow == "" && m.Class != "" {
		reported, err := v.w.sampler.most(m.Class, from, to)
		if err != nil {
			return 0, err
		}
		most = max(most, reported)
	}
	return float64(most), nil
}

// bucketClasses are the classes whose admissions a bucket counts.
var bucketClasses = map[string]string{"webhook_requests": "webhook", "logout": "logout", "login": "login"}

// tokensSpent is what a bucket has given out: as the state says it, or the
// number of admissions of its class.
func tokensSpent(m MetricExpect, s *snapshot) (float64, error) {
	class, ok := bucketClasses[m.Bucket]
	if !ok {
		if productClasses[m.Bucket] == nil {
			return 0, fmt.Errorf("unknown bucket %q", m.Bucket)
		}
		class = m.Bucket
	}
	sum := 0.0
	for _, product := range productClasses[class] {
		n, ok := spentIn(s.raw, product)
		if !ok {
			return 0, fmt.Errorf("the state says nothing about the bucket of class %q", product)
		}
		sum += n
	}
	return sum, nil
}

// spentIn is burst minus tokens of a class's bucket.
func spentIn(state any, product string) (float64, bool) {
	for _, classes := range find(state, "classes") {
		byName, _ := classes.(map[string]any)
		class, _ := byName[product].(map[string]any)
		bucket, _ := class["bucket"].(map[string]any)
		burst, ok1 := bucket["burst"].(float64)
		tokens, ok2 := bucket["tokens"].(float64)
		if ok1 && ok2 {
			return burst - tokens, true
		}
	}
	return 0, false
}

// seriesTotal counts the time series of the product on the metrics page.
func seriesTotal(m MetricExpect, s *snapshot) (float64, error) {
	if s.metrics == nil {
		return 0, fmt.Errorf("the metrics were not read")
	}
	n := 0
	for _, line := range productSeries(s.metrics) {
		if m.Prefix == "" || strings.Contains(line, m.Prefix) {
			n++
		}
	}
	if n == 0 {
		return 0, fmt.Errorf("no series with %q", m.Prefix)
	}
	return float64(n), nil
}

var productSeriesName = regexp.MustCompile(`^(caddy_)?admission_`)

// productSeries are the lines of the product's own metrics.
func productSeries(page []byte) (out []string) {
	for _, line := range strings.Split(string(page), "\n") {
		if productSeriesName.MatchString(line) {
			out = append(out, line)
		}
	}
	return out
}

var labelValue = regexp.MustCompile(`="((?:[^"\\]|\\.)*)"`)

// requestLabels counts label values in which a random value of the case's
// requests appears.
func (v *verdict) requestLabels(m MetricExpect) (float64, error) {
	s, err := v.at(m)
	if err != nil {
		return 0, err
	}
	series := productSeries(s.metrics)
	if len(series) == 0 {
		return 0, fmt.Errorf("no series of the product")
	}
	values := map[string]bool{}
	for _, line := range series {
		for _, found := range labelValue.FindAllStringSubmatch(line, -1) {
			values[found[1]] = true
		}
	}
	n := 0
	chosen := v.w.tokens.remembered()
	for value := range values {
		for _, random := range chosen {
			if strings.Contains(strings.ToLower(value), random) {
				n++
				break
			}
		}
	}
	return float64(n), nil
}

// exposed checks that an operator can see a number of that name.
func (v *verdict) exposed(where string, m MetricExpect) {
	_, inState := findNumber(v.w.end.raw, m.Name)
	if !inState && !strings.Contains(string(v.w.end.metrics), m.Name) {
		v.differ(where, "exposed in the state or the metrics", "neither")
	}
}

// expectsBalance reports whether the case counts accepted deliveries against
// delivered and kept ones.
func (w *world) expectsBalance() bool {
	for _, m := range w.c.Expect.Metrics {
		if m.Name == "accepted_minus_delivered_minus_depth" {
			return true
		}
	}
	return false
}

func (s *snapshot) balanced() bool { return s.balanceErr == nil && s.balance == 0 }

// balance is accepted deliveries, minus those that arrived, minus those kept.
func (w *world) balance(s *snapshot) (float64, error) {
	arrived := map[string]bool{}
	for _, one := range w.ledger.seen(func(c *call) bool { return c.upstream == ciUpstream && c.finished && c.status/100 == 2 }) {
		arrived[deliveryOf(one)] = true
	}
	accepted, missing := 0, 0
	for _, e := range w.book.all() {
		if e.wire == nil || e.status/100 != 2 || e.wire.deliveryID() == "" {
			continue
		}
		accepted++
		missing += one(!arrived[e.wire.deliveryID()])
	}
	if accepted == 0 {
		return 0, fmt.Errorf("no delivery was accepted")
	}
	if missing == 0 {
		return 0, nil
	}
	depth, err := stateNumber(s, "depth", "kept", "entries")
	return float64(missing) - depth, err
}
