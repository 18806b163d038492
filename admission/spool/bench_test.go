package spool

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkKeep measures acknowledged deliveries beside a plain file and its
// sync in the same run. The plain file is created, written and synced; with
// its directory synced too it promises what Keep promises.
func BenchmarkKeep(b *testing.B) {
	for _, size := range []int{8 << 10, 1 << 20} {
		for _, writers := range []int{1, 4} {
			name := fmt.Sprintf("%dKiB/%dwriters/", size>>10, writers)
			b.Run(name+"keep", func(b *testing.B) { benchKeep(b, size, writers) })
			b.Run(name+"file", func(b *testing.B) { benchFile(b, size, writers, false) })
			b.Run(name+"file+dir", func(b *testing.B) { benchFile(b, size, writers, true) })
		}
	}
}

func benchKeep(b *testing.B, size, writers int) {
	s, err := Open(Config{Dir: b.TempDir(), MaxBytes: 1 << 40, RepositoryShare: 1, SegmentBytes: 32 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	body := make([]byte, size)
	spreadOver(b, writers, func(w, i int) error {
		d := testDelivery(fmt.Sprintf("repo%d", w), i)
		d.Body = body
		id, err := s.Keep(context.Background(), "/hook", d)
		if err != nil {
			return err
		}
		return settleNow(s, id)
	})
}

// settleNow takes a delivery out as its receiver's answer would: nobody waits
// for that record.
func settleNow(s *Spool, id string) error {
	_, seq, err := s.find(id)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.removeLocked(s.entries[seq])
	s.mu.Unlock()
	return nil
}

func benchFile(b *testing.B, size, writers int, syncDir bool) {
	dir := b.TempDir()
	body := make([]byte, size)
	spreadOver(b, writers, func(w, i int) error {
		name := filepath.Join(dir, fmt.Sprintf("%d-%d", w, i))
		f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		if _, err = f.Write(body); err == nil {
			err = f.Sync()
		}
		if e := f.Close(); err == nil {
			err = e
		}
		if err == nil && syncDir {
			err = realDisk{}.SyncDir(dir)
		}
		if err != nil {
			return err
		}
		return os.Remove(name)
	})
}

// spreadOver runs b.N operations on some writers and reports their rate and
// how long they took.
func spreadOver(b *testing.B, writers int, op func(w, i int) error) {
	took := make([]time.Duration, b.N)
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for w := range writers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= b.N {
					return
				}
				from := time.Now()
				if err := op(w, i); err != nil {
					b.Error(err)
					return
				}
				took[i] = time.Since(from)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "kept/s")
	b.ReportMetric(float64(took[b.N/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[b.N*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(0, "ns/op")
}

// instant is a receiver that takes everything at once.
type instant struct{ n atomic.Int64 }

func (r *instant) RoundTrip(q *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, q.Body)
	r.n.Add(1)
	return &http.Response{StatusCode: 200, Body: http.NoBody, Request: q}, nil
}

// BenchmarkReplay measures kept deliveries on their way to a receiver that
// takes no time, over many repositories.
func BenchmarkReplay(b *testing.B) {
	s, err := Open(Config{Dir: b.TempDir(), MaxBytes: 1 << 40, MaxCount: 10_000_000})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	fillMany(b, s, b.N)
	r := &instant{}
	b.ResetTimer()
	if err := s.SetHooks([]HookConfig{{Name: hookName, Deliver: "http://127.0.0.1:1/", Transport: r}}); err != nil {
		b.Fatal(err)
	}
	for s.Snapshot().Due > 0 {
		runtime.Gosched()
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "replayed/s")
}

// fillMany keeps n deliveries of 1 KiB over 1,000 repositories.
func fillMany(b *testing.B, s *Spool, n int) {
	b.Helper()
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			for i := w; i < n; i += 64 {
				d := testDelivery(fmt.Sprintf("owner/repository-%03d", i%1000), i)
				d.Body = append(d.Body, make([]byte, 1<<10)...)
				if _, err := s.Keep(context.Background(), hookName, d); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkStart measures opening a spool with 100,000 deliveries, and what
// they hold in memory.
func BenchmarkStart(b *testing.B) {
	c := Config{Dir: b.TempDir(), RepositoryShare: 1}
	s, err := Open(c)
	if err != nil {
		b.Fatal(err)
	}
	fillMany(b, s, DefaultMaxCount)
	_ = s.Close()
	s = nil
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for b.Loop() {
		if s, err = Open(c); err != nil {
			b.Fatal(err)
		}
		if err = s.SetHooks([]HookConfig{{Name: hookName, Deliver: "http://127.0.0.1:1/", Transport: awayTransport{}}}); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		runtime.GC()
		runtime.ReadMemStats(&after)
		if n := s.Snapshot().Due; n != DefaultMaxCount {
			b.Fatalf("%d kept", n)
		}
		_ = s.Close()
		b.StartTimer()
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB")
}

// awayTransport is a receiver that cannot be reached.
type awayTransport struct{}

func (awayTransport) RoundTrip(*http.Request) (*http.Response, error) { return nil, errAway }
