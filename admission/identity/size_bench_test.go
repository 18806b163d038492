package identity

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkProvenBySize looks up proven secrets among few and among as many as
// the table holds.
func BenchmarkProvenBySize(b *testing.B) {
	for _, n := range []int{1, 1_000, 100_000} {
		s, now := NewStore(), time.Now()
		all := make([]Credential, n)
		for i := range all {
			all[i] = s.SessionValue(fmt.Sprint(i))
			s.Prove(all[i], 1, Target{}, now)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if !s.Proven(all[i*7919%n], 1, now) {
					b.Fatal("not proven")
				}
			}
		})
	}
}
