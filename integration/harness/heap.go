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
	return int64(g.Metric(tb, "go_memstats_heap_alloc_bytes"))
}

// WatchHeap looks at the gateway's heap, collected or not, all the time until the returned function is called, which gives the
// largest that was seen.
func (g *Gateway) WatchHeap(tb testing.TB) (peak func() int64) {
	stop, done := make(chan struct{}), make(chan struct{})
	most := 0.0
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			text, err := g.adminCall("GET", "/metrics", "", "")
			if err != nil {
				tb.Errorf("metrics: %v", err)
				return
			}
			value, err := metricIn(string(text), "go_memstats_heap_inuse_bytes")
			if err != nil {
				tb.Error(err)
				return
			}
			most = max(most, value)
		}
	}()
	return func() int64 { close(stop); <-done; return int64(most) }
}

// Metric returns the value of a metric without labels.
func (g *Gateway) Metric(tb testing.TB, name string) float64 {
	tb.Helper()
	value, err := metricIn(g.Metrics(tb), name)
	if err != nil {
		tb.Fatal(err)
	}
	return value
}

func metricIn(text, name string) (value float64, err error) {
	for line := range strings.Lines(text) {
		if n, _ := fmt.Sscanf(line, name+" %g", &value); n == 1 {
			return value, nil
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}
