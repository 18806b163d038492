package identity

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkProvenBySize looks up proven secrets among few, among as many as the
// table holds, and among ten times as many in a table without that bound. It
// reports what an entry takes, with one network and one target.
func BenchmarkProvenBySize(b *testing.B) {
	for _, n := range []int{1, 1_000, 100_000, 1_000_000} {
		limits, now := defaultBounds, time.Now()
		limits.secrets = max(limits.secrets, n)
		s, all := newStore(limits), make([]Credential, n)
		before := heap()
		for i := range all {
			all[i] = s.SessionValue(fmt.Sprint(i))
			s.Prove(all[i], 1, Target{}, now)
		}
		each := float64(heap()-before) / float64(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if !s.Proven(all[i*7919%n], 1, now) {
					b.Fatal("not proven")
				}
			}
			if n > 1 { // one entry shares its chunk with 255 free ones
				b.ReportMetric(each, "B/entry")
			}
		})
	}
}
