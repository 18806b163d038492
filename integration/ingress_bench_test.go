package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// kept is a client that sends one delivery after the other on a connection that it keeps.
type kept struct {
	source, addr string
	conn         net.Conn
	answers      *bufio.Reader
}

// send sends a request and returns the status of its answer, 0 when there was none.
func (k *kept) send(request string) int {
	if k.conn == nil {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(k.source)}}
		c, err := d.Dial("tcp", k.addr)
		if err != nil {
			return 0
		}
		k.conn, k.answers = c, bufio.NewReader(c)
	}
	if _, err := io.WriteString(k.conn, request); err != nil {
		k.close()
		return 0
	}
	resp, err := http.ReadResponse(k.answers, nil)
	if err != nil {
		k.close()
		return 0
	}
	io.Copy(io.Discard, resp.Body)
	if resp.Close {
		k.close()
	}
	return resp.StatusCode
}

func (k *kept) close() {
	if k.conn != nil {
		k.conn.Close()
		k.conn = nil
	}
}

// benchBody is the body of every delivery here: 8 KiB.
var benchBody = strings.Repeat("x", 8<<10)

// openBudgets are budgets that refuse nothing.
const openBudgets = "webhooks {\n requests 1000000 100000/s\n bytes 100GiB 10GiB/s\n}\n"

// BenchmarkForgedDeliveries is how many forged deliveries of 8 KiB the running gateway refuses for 64 senders, and how much
// processor time it takes for each. Use a gateway that was built without the race detector.
func BenchmarkForgedDeliveries(b *testing.B) {
	unsigned := strings.Replace(forgedDelivery("/hooks/ci", 8<<10), "X-Hub-Signature-256", "X-Unrelated", 1)
	for _, k := range []struct {
		name, budgets, request string
		status                 int
	}{
		{"by headers", openBudgets, unsigned, http.StatusUnauthorized},
		{"by budget", "webhooks {\n requests 4 0.001/s\n senders 192.0.2.0/24\n}\n", forgedDelivery("/hooks/ci", 8<<10), http.StatusServiceUnavailable},
		{"by MAC", openBudgets, forgedDelivery("/hooks/ci", 8<<10), http.StatusUnauthorized},
	} {
		b.Run(k.name, func(b *testing.B) {
			s := startIngress(b, harness.StartReceiver(b).Addr, k.budgets+githubHook(b, "/hooks/ci"))
			request := k.request + benchBody
			first := kept{source: harness.Loopback(1), addr: s.addr}
			for range 10 {
				first.send(request) // spends what the budget has
			}
			first.close()
			var client, other atomic.Int64
			before := s.CPU(b)
			b.SetParallelism(32) // two processors: 64
			b.RunParallel(func(pb *testing.PB) {
				c := kept{source: harness.Loopback(int(300 * client.Add(1))), addr: s.addr}
				defer c.close()
				for pb.Next() {
					if c.send(request) != k.status {
						other.Add(1)
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "refused/s")
			b.ReportMetric(float64((s.CPU(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
			b.ReportMetric(float64(other.Load())/float64(b.N), "answered-otherwise/op")
		})
	}
}

// BenchmarkGenuineBesideForged is how long a known sender's deliveries of 8 KiB take, alone and beside 64 that forge as fast as
// they are answered, with the default budgets.
func BenchmarkGenuineBesideForged(b *testing.B) {
	for _, forgers := range []int{0, 64} {
		b.Run(fmt.Sprint(forgers, " forgers"), func(b *testing.B) {
			s := startIngress(b, harness.StartReceiver(b).Addr, githubHook(b, "/hooks/ci"))
			request := delivery("/hooks/ci", benchBody, int64(len(benchBody))) + benchBody
			known := kept{source: harness.Loopback(1), addr: s.addr}
			defer known.close()
			stop := make(chan struct{})
			var crowd sync.WaitGroup
			var refused atomic.Int64
			known.send(request)
			for i := range forgers {
				crowd.Go(func() {
					c := kept{source: harness.Loopback(300 * (i + 1)), addr: s.addr}
					defer c.close()
					for {
						select {
						case <-stop:
							return
						default:
							c.send(forgedDelivery("/hooks/ci", 8<<10) + benchBody)
							refused.Add(1)
						}
					}
				})
			}
			var took []time.Duration
			lost := 0
			pace := time.Tick(25 * time.Millisecond) // 40 a second: the budget gives 50
			for b.Loop() {
				<-pace
				start := time.Now()
				if known.send(request) != http.StatusOK {
					lost++
				}
				took = append(took, time.Since(start))
			}
			close(stop)
			crowd.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*95/100].Microseconds()), "p95-µs")
			b.ReportMetric(float64(lost), "lost")
			b.ReportMetric(float64(refused.Load())/b.Elapsed().Seconds(), "forged/s")
		})
	}
}
