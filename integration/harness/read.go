package harness

import (
	"fmt"
	"os"
	"strings"
	"testing"
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
