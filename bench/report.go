package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// table is one measurement.
type table struct {
	title, text string
	header      []string
	rows        [][]string
	better      []string // where a rival is better
}

// add appends a row: its name, and pairs of a format and a value.
func (t *table) add(name string, cells ...any) {
	row := []string{name}
	for i := 0; i+1 < len(cells); i += 2 {
		row = append(row, fmt.Sprintf(cells[i].(string), cells[i+1]))
	}
	t.rows = append(t.rows, row)
}

func (t *table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n", t.title)
	if t.text != "" {
		fmt.Fprintf(&b, "%s\n\n", t.text)
	}
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.header)
	line(strings.Split("---"+strings.Repeat(" ---:", len(t.header)-1), " "))
	for _, r := range t.rows {
		line(r)
	}
	return b.String()
}

// report is docs/benchmarks.md in the making.
type report struct {
	options
	machine string
	before  string // load of the machine
	start   time.Time
	tables  []*table
}

func newReport(ctx context.Context, o options) *report {
	return &report{options: o, start: time.Now(), before: loadAverage(), machine: machine(ctx, o.gateway)}
}

func (r *report) add(t *table) {
	r.tables = append(r.tables, t)
	fmt.Printf("\n%s\n", t)
}

func (r *report) write(path string) error {
	var b strings.Builder
	b.WriteString(intro)
	fmt.Fprintf(&b, "## Machine\n\n%s| load average before, after | %s, %s |\n| began, took | %s, %s |\n| command | `make bench` |\n\n", r.machine,
		r.before, loadAverage(), r.start.Format("2006-01-02 15:04"), time.Since(r.start).Round(time.Minute))
	b.WriteString("## Where a rival is better\n\nIn this run:\n\n")
	better := 0
	for _, t := range r.tables {
		for _, line := range t.better {
			fmt.Fprintf(&b, "- %s: %s\n", t.title, line)
			better++
		}
	}
	if better == 0 {
		b.WriteString("- nowhere in what is measured here\n")
	}
	b.WriteString("\n## Tables\n\n")
	for _, t := range r.tables {
		fmt.Fprintf(&b, "%s\n", t)
	}
	if r.engine != "" {
		out, err := os.ReadFile(r.engine)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, engineText, benchLines(string(out)))
	}
	fmt.Fprintf(&b, configurations, strings.TrimSpace(sizes(nginxGit, serverWorkers/2, 64, 20, "")), strings.TrimSpace(sizes(haproxyGit, serverWorkers/2, 64, 20, "10s")))
	if path == "" {
		return nil
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// benchLines keeps the lines of go test's output that hold a figure.
func benchLines(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "Benchmark") {
			b.WriteString(line)
		}
	}
	return strings.TrimSpace(b.String())
}

func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(b)); err == nil && len(f) > 0 {
		return f[0]
	}
	return "unknown"
}

// machine is the head of the table that says on what was measured.
func machine(ctx context.Context, gateway string) string {
	var b strings.Builder
	row := func(name, value string) { fmt.Fprintf(&b, "| %s | %s |\n", name, value) }
	row("machine", fmt.Sprintf("%d × %s, Linux %s", runtime.NumCPU(), processor(), output(ctx, "uname", "-r")))
	b.WriteString("| --- | --- |\n")
	row("gateway, Caddy", "Caddy "+first(output(ctx, gateway, "version")))
	row("nginx", strings.TrimPrefix(output(ctx, "nginx", "-v"), "nginx version: "))
	row("HAProxy", output(ctx, "haproxy", "-v"))
	row("git", output(ctx, "git", "--version"))
	row("Go of this program", runtime.Version())
	return b.String()
}

func processor() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// output is the first line that a command says.
func output(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}

func first(s string) string {
	word, _, _ := strings.Cut(s, " ")
	return word
}
