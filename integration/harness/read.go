package harness

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BytesRead is how many bytes the process has asked the kernel for and got, from files and connections, since it started. What
// waits in the kernel's buffers is not in it.
func (p *Process) BytesRead(tb testing.TB) int64 {
	tb.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", p.cmd.Process.Pid))
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var n int64
		if got, _ := fmt.Sscanf(line, "rchar: %d", &n); got == 1 {
			return n
		}
	}
	tb.Fatalf("no rchar in %q", raw)
	return 0
}

// CPU is the processor time that the process has used since it started.
func (p *Process) CPU(tb testing.TB) time.Duration {
	tb.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	var user, system int64
	if fields := strings.Fields(rest); len(fields) > 12 {
		user, _ = strconv.ParseInt(fields[11], 10, 64)
		system, _ = strconv.ParseInt(fields[12], 10, 64)
	}
	return time.Duration(user+system) * (time.Second / 100) // in ticks of the kernel's clock
}
