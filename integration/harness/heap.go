package harness

import (
	"fmt"
	"strings"
	"testing"
)

// Heap returns the bytes of the objects that are reachable in the gateway after a garbage collection.
func (g *Gateway) Heap(tb testing.TB) int64 {
	tb.Helper()
	for range 2 { // what a finalizer held goes in the second
		if _, err := g.adminCall("GET", "/debug/pprof/heap?gc=1", "", ""); err != nil {
			tb.Fatalf("heap: %v", err)
		}
	}
	for line := range strings.Lines(g.Metrics(tb)) {
		var bytes float64
		if n, _ := fmt.Sscanf(line, "go_memstats_heap_alloc_bytes %g", &bytes); n == 1 {
			return int64(bytes)
		}
	}
	tb.Fatal("heap: no go_memstats_heap_alloc_bytes in the metrics")
	return 0
}
