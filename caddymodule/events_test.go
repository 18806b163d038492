package caddymodule

import (
	"testing"
	"time"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/gate"
)

// TestRefusalLog: one line per kind and interval, which says how many refusals
// it stands for, and nothing else about them.
func TestRefusalLog(t *testing.T) {
	logger, logs := observed()
	l := newRefusalLog(logger)
	now := time.Unix(1000, 0)
	l.now = func() time.Time { return now }
	sink := l.sink("p")
	full := gate.Event{Class: admission.Anonymous, Reason: "pool_full", Status: 503, Retry: 4 * time.Second}
	capped := gate.Event{Class: admission.Anonymous, Reason: "caller_cap", Status: 429}
	would := gate.Event{Class: admission.Anonymous, Reason: "pool_full", Would: true}

	steps := []struct {
		after time.Duration
		event gate.Event
		lines int
		count int64
	}{
		{0, full, 1, 1},
		{time.Second, full, 1, 0},
		{0, capped, 2, 1},
		{0, would, 3, 1},
		{8 * time.Second, full, 3, 0},
		{time.Second, full, 4, 3},
		{time.Second, full, 4, 0},
		{time.Hour, full, 5, 2},
	}
	for i, step := range steps {
		now = now.Add(step.after)
		sink(step.event)
		if logs.Len() != step.lines {
			t.Fatalf("step %d: %d lines, want %d", i, logs.Len(), step.lines)
		}
		if step.count > 0 {
			last := logs.All()[logs.Len()-1].ContextMap()
			if last["count"] != step.count {
				t.Errorf("step %d: the line stands for %v, want %d", i, last["count"], step.count)
			}
		}
	}
	for _, line := range logs.All() {
		for field := range line.ContextMap() {
			switch field {
			case "pool", "class", "reason", "status", "retry_after", "count":
			default:
				t.Errorf("a line has the field %q", field)
			}
		}
	}
}

// TestRefusalLogThroughHandler: a refusal is one line without an address; with
// log_callers it carries the client's.
func TestRefusalLogThroughHandler(t *testing.T) {
	for _, c := range []struct{ name, option string }{{"quiet_log", ""}, {"caller_log", "log_callers"}} {
		t.Run(c.name, func(t *testing.T) {
			g := newGitServer()
			s := start(t, "admission "+c.name+" {\n total 5\n wait off\n "+c.option+"\n }\n test_upstream", g.serve)
			logger, logs := observed()
			lastApp(t).events.logger = logger
			release := s.holdAnonymous(g, "198.51.100.1")
			for range 3 {
				s.do(ask{method: "POST", path: readRPC, body: "0000", from: "198.51.100.2", user: "someone", pass: "hunter2"})
			}
			release()
			if logs.Len() != 1 {
				t.Fatalf("%d lines for three refusals of a kind, want 1", logs.Len())
			}
			line := logs.All()[0].ContextMap()
			if line["class"] != "anonymous" || line["reason"] == "" || line["pool"] != c.name {
				t.Errorf("line %v", line)
			}
			if ip, want := line["client_ip"], c.option != ""; (ip == "198.51.100.2") != want {
				t.Errorf("client_ip is %v, want it: %v", ip, want)
			}
		})
	}
}
