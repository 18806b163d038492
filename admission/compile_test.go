package admission

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDefaults(t *testing.T) {
	p := compile(t, Config{})
	type row struct {
		reserve, max, address, credential, waitSize int
		wait, deadline                              time.Duration
	}
	for class, want := range map[Class]row{
		Push:          {32, 96, 24, 8, 256, time.Minute, 6 * time.Hour},
		Read:          {16, 64, 32, 16, 256, time.Minute, 2 * time.Hour},
		Discovery:     {8, 16, 4, 0, 1024, 20 * time.Second, 10 * time.Second},
		Candidate:     {8, 8, 2, 0, 1024, 30 * time.Second, 10 * time.Second},
		Anonymous:     {0, 64, 4, 0, 128, 10 * time.Second, 2 * time.Hour},
		LFS:           {0, 32, 8, 0, 64, 30 * time.Second, 6 * time.Hour},
		Web:           {0, 16, 4, 0, 64, 5 * time.Second, time.Minute},
		Stream:        {0, 1024, 64, 0, 0, 0, 0},
		Webhook:       {0, 4, 0, 0, 0, 0, 8 * time.Second},
		Logout:        {0, 4, 0, 0, 64, time.Second, 2 * time.Second},
		LoginStart:    {0, 8, 0, 0, 64, 5 * time.Second, 30 * time.Second},
		LoginCallback: {0, 8, 0, 0, 0, 0, 30 * time.Second},
		Other:         {0, Unlimited, 0, 0, 0, 0, 0},
	} {
		c := p.Classes[class]
		got := row{c.Reserve, c.Max, c.CallerMax[ByAddress], c.CallerMax[ByCredential], c.WaitSize, c.WaitMax, c.Deadline}
		if got != want {
			t.Errorf("%s: %+v; want %+v", class, got, want)
		}
	}
	for class, want := range map[Class][2]BucketPolicy{
		Webhook: {{200, 50}, {32 << 20, 8 << 20}}, Logout: {{64, 32}}, LoginStart: {{16, 4}}, LoginCallback: {{16, 4}},
	} {
		if got := [2]BucketPolicy{p.Classes[class].Bucket, p.Classes[class].Bytes}; got != want {
			t.Errorf("%s: buckets %v; want %v", class, got, want)
		}
	}
	if p.Total != 128 || p.CallersMax != 1<<20 || p.Classes[LFS].UnprovenMax != 16 {
		t.Errorf("total %d, callers %d, unproven %d", p.Total, p.CallersMax, p.Classes[LFS].UnprovenMax)
	}
}

func TestScaling(t *testing.T) {
	for total, want := range map[int][5][2]int{ // reserve, max
		5:   {{1, 3}, {1, 2}, {1, 1}, {1, 1}, {0, 2}},
		16:  {{4, 12}, {2, 8}, {1, 2}, {1, 1}, {0, 8}},
		64:  {{16, 48}, {8, 32}, {4, 8}, {4, 4}, {0, 32}},
		256: {{64, 192}, {32, 128}, {16, 32}, {16, 16}, {0, 128}},
	} {
		p := compile(t, Config{Total: total})
		for c := Push; c.Git(); c++ {
			if got := [2]int{p.Classes[c].Reserve, p.Classes[c].Max}; got != want[c] {
				t.Errorf("total %d, %s: reserve and max %v; want %v", total, c, got, want[c])
			}
		}
	}
}

// problems returns the paths of what is wrong, warnings marked.
func problems(cfg Config) (p *Policy, paths []string) {
	p, all := cfg.Compile()
	for _, pr := range all {
		path := pr.Path
		if pr.Warning {
			path += " (warning)"
		}
		paths = append(paths, path)
	}
	return p, paths
}

func TestProblems(t *testing.T) {
	class := func(name string, cc ClassConfig) Config {
		return Config{Classes: map[string]*ClassConfig{name: &cc}}
	}
	bucket := func(burst int64, rate float64) *BucketConfig { return &BucketConfig{burst, rate} }
	for _, tc := range []struct {
		name string
		cfg  Config
		want []string
	}{
		{"nothing", Config{}, nil},
		{"negative total", Config{Total: -1}, []string{"total"}},
		{"small total", Config{Total: 4}, []string{
			"class candidate reserve", "class discovery reserve", "class push reserve", "class read reserve"}},
		{"reserves above total", class("push", ClassConfig{Reserve: ptr(100)}), []string{"total"}},
		{"max above total", class("push", ClassConfig{Max: ptr(200)}), []string{"class push max (warning)"}},
		{"max below reserve", class("push", ClassConfig{Max: ptr(2), Reserve: ptr(3)}), []string{"class push max"}},
		{"push shut", class("push", ClassConfig{Max: ptr(0)}), []string{"class push max"}},
		{"anonymous shut", class("anonymous", ClassConfig{Max: ptr(0)}), nil},
		{"starved candidate", class("candidate", ClassConfig{Reserve: ptr(0)}), []string{"class candidate reserve"}},
		{"starved anonymous", class("push", ClassConfig{Max: ptr(128)}), nil},
		{"reserve outside the total", class("lfs", ClassConfig{Reserve: ptr(1)}), []string{"class lfs reserve"}},
		{"one webhook permit", class("webhook", ClassConfig{Max: ptr(1)}), []string{"class webhook max"}},
		{"two webhook permits", class("webhook", ClassConfig{Max: ptr(2)}), nil},
		{"eight webhook permits", class("webhook", ClassConfig{Max: ptr(8)}), nil},
		{"nine webhook permits", class("webhook", ClassConfig{Max: ptr(9)}), []string{"class webhook max"}},
		{"webhooks that wait", class("webhook", ClassConfig{Wait: &WaitConfig{1, Duration(time.Second)}}), []string{"class webhook wait size"}},
		{"small deliveries only", class("webhook", ClassConfig{Bytes: bucket(1<<20, 1)}), []string{"class webhook bytes burst (warning)"}},
		{"unknown class", class("clone", ClassConfig{}), []string{`class "clone"`}},
		{"two numbers without proof", class("anonymous", ClassConfig{AddressMax: ptr(1)}), []string{"class anonymous caller_max (address)"}},
		{"wait for nothing", class("push", ClassConfig{Wait: &WaitConfig{Size: 5}}), []string{"class push wait time"}},
		{"bad bucket", class("push", ClassConfig{Bucket: bucket(0, 0)}), []string{"class push bucket burst", "class push bucket rate"}},
		{"never full again", class("push", ClassConfig{CallerBucket: bucket(1000, 0.001)}), []string{"class push caller_bucket"}},
		{"five placeholders", class("push", ClassConfig{CustomMax: slices.Repeat([]CustomMax{{1, "{x}"}}, 5)}), []string{"class push caller_max … by"}},
		{"no placeholder", class("push", ClassConfig{CustomMax: []CustomMax{{1, ""}}}), []string{"class push caller_max … by"}},
		{"few workers", Config{UpstreamWorkers: 100}, []string{"upstream_workers (warning)"}},
		{"many workers", Config{UpstreamWorkers: 1_000_000}, nil},
		{"all at once", Config{Total: -1, CallersMax: -5, Classes: map[string]*ClassConfig{
			"push": {Reserve: ptr(-1), Deadline: ptr(Duration(-1))}, "nope": {}, "web": {Max: ptr(-3)}}},
			[]string{`class "nope"`, "callers_max", "class push deadline", "class push reserve", "class web max", "total"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, got := problems(tc.cfg)
			slices.Sort(got)
			slices.Sort(tc.want)
			if !slices.Equal(got, tc.want) {
				t.Errorf("problems %q; want %q", got, tc.want)
			}
			fatal := slices.ContainsFunc(got, func(s string) bool { return !strings.HasSuffix(s, "(warning)") })
			if (p == nil) != fatal {
				t.Errorf("policy %v with problems %q", p, got)
			}
		})
	}
}

func TestStarvationCanBeAllowed(t *testing.T) {
	cfg := reserving()
	cfg.Total = 4
	cfg.Classes["push"].Reserve = ptr(0)
	if p, got := problems(cfg); p != nil || !slices.Equal(got, []string{"class push reserve"}) {
		t.Errorf("policy %v, problems %q", p, got)
	}
	cfg.AllowStarvation = true
	if p, got := problems(cfg); p == nil || !slices.Equal(got, []string{"class push reserve (warning)"}) {
		t.Errorf("policy %v, problems %q", p, got)
	}
}

func TestConfigJSON(t *testing.T) {
	text := `{"total":64,"wait_off":true,"classes":{"push":{"reserve":8,"wait":{"size":5,"max":"2s"},"deadline":1000000000,
		"caller_bucket":{"burst":60,"per_second":0.5},"custom_max":[{"max":3,"by":"{http.request.host}"}]}}}`
	var cfg Config
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		t.Fatal(err)
	}
	p := compile(t, cfg)
	push := p.Classes[Push]
	if push.WaitSize != 5 || push.WaitMax != 2*time.Second || push.Deadline != time.Second || push.Reserve != 8 ||
		push.CallerBucket != (BucketPolicy{60, 0.5}) || push.CallerMax[ByCustom0] != 3 || push.CustomBy[0] != "{http.request.host}" {
		t.Errorf("push %+v", push)
	}
	if p.Classes[Read].WaitSize != 0 {
		t.Error("wait_off left read waiting")
	}
	again, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var second Config
	if err := json.Unmarshal(again, &second); err != nil {
		t.Fatal(err)
	}
	if *compile(t, second) != *p {
		t.Errorf("writing and reading changed the configuration: %s", again)
	}
	for _, bad := range []string{`{"classes":{"push":{"deadline":"soon"}}}`, `{"classes":{"push":{"deadline":true}}}`} {
		if json.Unmarshal([]byte(bad), &cfg) == nil {
			t.Errorf("%s was read", bad)
		}
	}
}

func TestShares(t *testing.T) {
	s := compile(t, Config{UpstreamWorkers: 150}).Shares()
	if s.Total != 128 || s.Reserved != 64 || s.Rest != 64 || s.CapsTogether != s.Total+s.Outside {
		t.Errorf("%+v", s)
	}
	if want := 32 + 16 + 1024 + 4 + 4 + 8 + 8; s.Outside != want {
		t.Errorf("outside %d; want %d", s.Outside, want)
	}
	lines := s.Lines()
	if want := "push: 32 reserved + up to 64 of 64 shared, max 96, 256 may wait"; lines[0] != want {
		t.Errorf("got %q; want %q", lines[0], want)
	}
	if want := "git total 128 = 64 reserved + 64 shared; own pools 1096; together 1224 against 150 upstream workers"; lines[len(lines)-1] != want {
		t.Errorf("got %q; want %q", lines[len(lines)-1], want)
	}
}

// FuzzCompile: whatever is written, compiling ends, gives the same result twice,
// and what loads keeps the promises the engine is built on.
func FuzzCompile(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"total":5,"wait_off":true}`, `{"total":4,"allow_starvation":true,"classes":{"push":{"reserve":0},"read":{"reserve":1},"discovery":{"reserve":1},"candidate":{"reserve":1}}}`,
		`{"total":1048576,"upstream_workers":3}`, `{"classes":{"push":{"max":999,"reserve":1},"webhook":{"max":8,"bytes":{"burst":1,"per_second":1e-300}}}}`,
		`{"classes":{"lfs":{"caller_bucket":{"burst":5,"per_second":1e9}},"read":{"custom_max":[{"max":1,"by":"{a}"}],"address_max":0}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var cfg Config
		if json.Unmarshal(text, &cfg) != nil {
			return
		}
		before := maps.Clone(cfg.Classes)
		p, found := cfg.Compile()
		p2, found2 := cfg.Compile()
		if !slices.Equal(found, found2) || (p == nil) != (p2 == nil) || p != nil && *p != *p2 {
			t.Fatal("compiling twice gave two results")
		}
		if !maps.Equal(before, cfg.Classes) {
			t.Fatal("compiling changed its input")
		}
		if p == nil {
			if len(found) == 0 {
				t.Fatal("rejected without a reason")
			}
			return
		}
		checkPolicy(t, p, cfg.AllowStarvation)
		c := NewController(p)
		for class := range NumClasses {
			permit, _ := c.TryAdmit(from(class, 5))
			permit.End(OutcomeCompleted)
		}
		mustBeIdle(t, c)
	})
}

func checkPolicy(t *testing.T, p *Policy, starvation bool) {
	t.Helper()
	if p.Rest() < 0 || p.Total < 1 || p.CallersMax < 1 {
		t.Fatalf("total %d, rest %d, callers %d", p.Total, p.Rest(), p.CallersMax)
	}
	for c := range NumClasses {
		cp := &p.Classes[c]
		if c.Git() && (cp.Reserve < 0 || cp.Max < cp.Reserve || cp.Max > p.Total) {
			t.Fatalf("%s: reserve %d, max %d of %d", c, cp.Reserve, cp.Max, p.Total)
		}
		if (cp.WaitSize > 0) != (cp.WaitMax > 0) {
			t.Fatalf("%s: %d may wait for %v", c, cp.WaitSize, cp.WaitMax)
		}
	}
	for _, c := range pushPath {
		if !starvation && (p.starvable(c) || p.Classes[c].Max < 1) {
			t.Fatalf("%s can be left with nothing", c)
		}
	}
	if m := p.Classes[Webhook].Max; m < webhookMin || m > webhookMax {
		t.Fatalf("%d webhook permits", m)
	}
}
