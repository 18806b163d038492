package gate

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// BenchmarkHookRefused is the cost of one forged delivery: refused by its
// headers, by the sender's share, and by the MAC of 8 KiB.
func BenchmarkHookRefused(b *testing.B) {
	body := strings.Repeat("x", 8<<10)
	for name, c := range map[string]struct {
		head string
		want int
		cfg  admission.Config
	}{
		"by headers": {"X-Other", http.StatusUnauthorized, admission.Config{}},
		"by budget":  {"X-Hub-Signature-256", http.StatusServiceUnavailable, bucketOf(1, 0.0001)},
		"by MAC":     {"X-Hub-Signature-256", http.StatusUnauthorized, bucketOf(1<<40, 1e9)},
	} {
		b.Run(name, func(b *testing.B) {
			_, g := newIngressGate(b, c.cfg, IngressConfig{Hooks: []HookConfig{githubHook(b, "/hooks/ci")}})
			r := parse(b, delivery{body: body, forged: true})
			if c.head != "X-Hub-Signature-256" {
				r.Header.Del("X-Hub-Signature-256")
			}
			serveOnce := func() int {
				r.Body = io.NopCloser(strings.NewReader(body))
				w := httptest.NewRecorder()
				_ = g.Serve(w, r, (&hookReceiver{}).next)
				return w.Code
			}
			serveOnce()
			b.ReportAllocs()
			for b.Loop() {
				if code := serveOnce(); code != c.want {
					b.Fatal(code)
				}
			}
		})
	}
}

func bucketOf(burst int64, rate float64) admission.Config {
	return admission.Config{Classes: map[string]*admission.ClassConfig{"webhook": {
		Bucket: &admission.BucketConfig{Burst: burst, PerSecond: rate},
		Bytes:  &admission.BucketConfig{Burst: 1 << 40, PerSecond: 1e12},
	}}}
}

// BenchmarkHookUnderForged is the latency of a known sender's deliveries alone
// and beside 64 connections that forge as fast as they are answered.
func BenchmarkHookUnderForged(b *testing.B) {
	for _, forgers := range []int{0, 64} {
		b.Run(fmt.Sprint(forgers, " forgers"), func(b *testing.B) {
			_, g := newIngressGate(b, admission.Config{Classes: map[string]*admission.ClassConfig{"webhook": {
				Bucket: &admission.BucketConfig{Burst: 20000, PerSecond: 10000},
				Bytes:  &admission.BucketConfig{Burst: 1 << 30, PerSecond: 1 << 28},
			}}}, IngressConfig{Hooks: []HookConfig{githubHook(b, "/hooks/ci")}})
			u := &hookReceiver{status: http.StatusOK}
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _ = g.Serve(w, r, u.discard) }))
			defer srv.Close()
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
			post := func(d delivery) int {
				r, _ := http.NewRequest(http.MethodPost, srv.URL+"/hooks/ci", bytes.NewReader([]byte(d.body)))
				r.Header = parse(b, d).Header
				resp, err := client.Do(r)
				if err != nil {
					return 0
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				return resp.StatusCode
			}
			genuine := delivery{addr: knownAddr, body: strings.Repeat("x", 8<<10)}
			post(genuine)
			stop, refused := make(chan struct{}), make([]int, forgers)
			var wg sync.WaitGroup
			for i := range forgers {
				wg.Go(func() {
					d := delivery{addr: fmt.Sprintf("198.51.%d.1", i), body: genuine.body, forged: true}
					for {
						select {
						case <-stop:
							return
						default:
							post(d)
							refused[i]++
						}
					}
				})
			}
			var took []time.Duration
			lost, begin := 0, time.Now()
			for b.Loop() {
				start := time.Now()
				if post(genuine) != http.StatusOK {
					lost++
				}
				took = append(took, time.Since(start))
			}
			span := time.Since(begin).Seconds()
			close(stop)
			wg.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*95/100].Microseconds()), "p95-µs")
			b.ReportMetric(float64(lost), "lost")
			sum := 0
			for _, n := range refused {
				sum += n
			}
			b.ReportMetric(float64(sum)/span, "forged/s")
		})
	}
}

// BenchmarkMatch is what every request pays for configured paths.
func BenchmarkMatch(b *testing.B) {
	_, g := newIngressGate(b, admission.Config{}, IngressConfig{
		Hooks:      []HookConfig{githubHook(b, "/hooks/ci")},
		LoginStart: []string{"/user/oauth2/*"}, LoginCallback: []string{"/user/oauth2/*/callback"},
	})
	for _, target := range []string{"/o/r.git/info/refs", "/hooks/ci", "/O/r%20x"} {
		b.Run(target, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, target, nil)
			b.ReportAllocs()
			for b.Loop() {
				g.ingress.match(r)
			}
		})
	}
}
