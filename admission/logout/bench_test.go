package logout

import (
	"context"
	"testing"
	"time"
)

func BenchmarkToken(b *testing.B) {
	f := readVectors(b)
	k, _ := f.checker(b)
	v := f.Vectors[0] // RS256
	now := time.Unix(v.Now, 0)
	token, bad := k.CheckBody(v.Body, now)
	if bad != nil {
		b.Fatal(bad)
	}
	b.Run("shape", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, bad := k.CheckBody(v.Body, now); bad != nil {
				b.Fatal(bad)
			}
		}
	})
	b.Run("RS256", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if bad := token.Verify(context.Background(), now); bad != nil {
				b.Fatal(bad)
			}
		}
	})
}
