package harness

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
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

// WatchHeap looks at the gateway's heap, collected or not, ten times a second until the returned function is called, which gives
// the largest that was seen. It asks in the way that leaves least behind in the heap itself.
func (g *Gateway) WatchHeap(tb testing.TB) (peak func() int64) {
	stop, done := make(chan struct{}), make(chan struct{})
	var most int64
	go func() {
		defer close(done)
		for tick := time.Tick(100 * time.Millisecond); ; {
			out, err := g.adminCall("GET", "/debug/vars", "", "")
			var vars struct{ Memstats struct{ HeapInuse int64 } }
			if err == nil {
				err = json.Unmarshal(out, &vars)
			}
			if err != nil || vars.Memstats.HeapInuse == 0 {
				tb.Errorf("heap: %v in %.200q", err, out)
				return
			}
			most = max(most, vars.Memstats.HeapInuse)
			select {
			case <-stop:
				return
			case <-tick:
			}
		}
	}()
	return func() int64 { close(stop); <-done; return most }
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

// Series returns the value of the metric whose name and labels are written as series, without the label pool; 0 when there is
// none yet.
func (g *Gateway) Series(tb testing.TB, series string) (value float64) {
	tb.Helper()
	for line := range strings.Lines(g.Metrics(tb)) {
		name, text, _ := strings.Cut(line, "} ")
		if strings.Replace(name, `,pool="default"`, "", 1)+"}" == series {
			fmt.Sscan(text, &value)
		}
	}
	return value
}
