package identity

import (
	"fmt"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/caddy-admission/gateway/admission"
)

// The hot path does not allocate.
func TestAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("under the race detector sync.Pool forgets on purpose")
	}
	s := NewStore()
	h, bearer := header(basic("alice", "secret")), header("Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.AAAA")
	c := s.Parse(h)
	s.Prove(c, groupA, push, start)
	s.RecordBare(read, Digest{}, Accepted, start)
	s.SaveChallenge(push, challenge("Basic"))
	r := request(discovery, "User-Agent", "git/2.55", "Accept", "*/*", "Pragma", "no-cache", "X-Request-Id", "1")
	withCookie := request(discovery, "Cookie", "a=1")
	for name, f := range map[string]func(){
		"Parse basic":  func() { s.Parse(h) },
		"Parse bearer": func() { s.Parse(bearer) },
		"Proven":       func() { s.Proven(c, groupA, start) },
		"not Proven":   func() { s.Proven(c, groupB, start) },
		"ProvenGroup":  func() { s.ProvenGroup(groupA, start) },
		"Opened":       func() { s.Opened(c, groupA, push, start) },
		"Rest":         func() { s.Rest(r) },
		"Rest, cookie": func() { s.Rest(withCookie) },
		"Open":         func() { s.Open(read, start) },
		"RecordBare":   func() { s.RecordBare(read, Digest{}, Refused, start) },
		"Challenge":    func() { s.Challenge(push, start) },
		"AskedRefs":    func() { s.AskedRefs(1, read, start) },
		"DidAskRefs":   func() { s.DidAskRefs(1, read, start) },
	} {
		if n := testing.AllocsPerRun(200, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// What an entry costs, index included, is constant: printed, and bounded so
// that the sizes in the documentation stay true.
func TestMemory(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector has its own memory")
	}
	const n = 8_000
	secret := func(i int) Credential {
		return Credential{Form: Token, Secret: Digest{1, byte(i), byte(i >> 8), byte(i >> 16)}}
	}
	for _, x := range []struct {
		name string
		most uint64 // bytes per entry
		fill func(*Store, int)
	}{
		{"proven secret, 1 group, its target", 660, func(s *Store, i int) { s.Prove(secret(i), admission.Key(i), repository(i), start) }},
		{"proven secret, 8 groups, one target", 900, func(s *Store, i int) {
			for g := range 8 {
				s.Prove(secret(i), admission.Key(8*i+g), push, start)
			}
		}},
		{"answer", 128, func(s *Store, i int) { s.RecordBare(repository(i), Digest{}, Accepted, start) }},
		{"refusal", 128, func(s *Store, i int) { s.RecordBare(repository(i), Digest{}, Refused, start) }},
		{"info/refs", 128, func(s *Store, i int) { s.AskedRefs(admission.Key(i), read, start) }},
		{"remembered group", 96, func(s *Store, i int) {
			s.RememberGroup(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24), start)
		}},
	} {
		s := NewStore()
		before := heap()
		for i := range n {
			x.fill(s, i)
		}
		each := (heap() - before) / n
		t.Logf("%-36s %4d bytes", x.name, each)
		if each > x.most {
			t.Errorf("%s: %d bytes, documented at most %d", x.name, each, x.most)
		}
		runtime.KeepAlive(s)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A full table stays full: entries are used again, nothing grows.
func TestMemoryIsBounded(t *testing.T) {
	s := small()
	for i := range 5_000 {
		c := Credential{Form: Token, Secret: Digest{1, byte(i), byte(i >> 8)}}
		s.Prove(c, admission.Key(i), repository(i), start)
		s.RecordBare(repository(i), Digest{}, Accepted, start)
	}
	if n := s.proofs.table.taken; n > 3 {
		t.Errorf("%d entries for 3 secrets", n)
	}
	if n := s.answers.bare.taken; n > 3 {
		t.Errorf("%d entries for 3 answers", n)
	}
	if n := len(s.proofs.heads); n > 3 {
		t.Errorf("%d groups for 3 secrets", n)
	}
}

func BenchmarkParse(b *testing.B) {
	s := NewStore()
	for name, line := range map[string]string{
		"basic":   basic("x-access-token", "0123456789abcdef0123456789abcdef01234567"),
		"bearer":  "Bearer 0123456789abcdef0123456789abcdef01234567",
		"refused": "Basic " + strings.Repeat("dTpw", 2_000) + "!",
	} {
		h := http.Header{"Authorization": {line}}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Parse(h)
			}
		})
	}
}

func BenchmarkProven(b *testing.B) {
	s := NewStore()
	const n = 50_000
	proven := make([]Credential, n)
	for i := range proven {
		proven[i] = Credential{Form: Token, Secret: Digest{1, byte(i), byte(i >> 8), byte(i >> 16)}}
		s.Prove(proven[i], admission.Key(i%100), push, start)
	}
	b.Run("yes", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			s.Proven(proven[i%n], admission.Key(i%n%100), start)
		}
	})
	b.Run("stranger", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			s.Proven(proven[i%n], 1000, start)
		}
	})
}

func BenchmarkRest(b *testing.B) {
	s := NewStore()
	fields := []string{"User-Agent", "git/2.55", "Accept", "*/*", "Accept-Encoding", "gzip", "Pragma", "no-cache", "Git-Protocol", "version=2"}
	none, cookie := request(discovery, fields...), request(discovery, append(fields, "Cookie", "a=1")...)
	hostile := request(discovery, fields...)
	for i := range 500 {
		hostile.Header.Set(fmt.Sprint("X-Something-Quite-Long-", i), "x")
	}
	for name, r := range map[string]*http.Request{"none": none, "cookie": cookie, "500 odd fields": hostile} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Rest(r)
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	s := NewStore()
	s.RecordBare(read, Digest{}, Accepted, start)
	b.ReportAllocs()
	for b.Loop() {
		s.Open(read, start)
	}
}
