package identity

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// Everything at once, on tables small enough to overflow all the time. The
// race detector watches; afterwards sizes, sums and lists must be right.
func TestConcurrent(t *testing.T) {
	s := small()
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			for i := range 2_000 {
				s.doSomething(t, random, after(time.Duration(i)*time.Minute))
			}
		})
	}
	all.Wait()
	checkSums(t, s)
	s.proofs.checkLists(t)
	v := s.Snapshot()
	if v.ProofsMade == 0 || v.ProofsDenied == 0 || v.ProofsDisplaced == 0 || v.Questions.Refused == 0 || v.Asking.Held != 0 {
		t.Errorf("something never happened: %+v", v)
	}
}

func (s *Store) doSomething(t *testing.T, random *rand.Rand, now time.Time) {
	c := s.parse(t, fmt.Sprint("token ", random.IntN(6)))
	group, target := admission.Key(random.IntN(12)), repository(random.IntN(6))
	rest := Digest{byte(random.IntN(2))}
	network := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(group), 0}), 24)
	switch random.IntN(14) {
	case 0, 1:
		s.Prove(c, group, target, now)
	case 2:
		s.Opened(c, group, target, now)
	case 3:
		s.Denied(c, group, target, now)
	case 4:
		s.Proven(c, group, now)
	case 5:
		s.ProvenGroup(group, now)
	case 6:
		s.RecordBare(target, rest, Answer(random.IntN(3)), now)
	case 7:
		s.Open(target, now)
	case 8:
		s.Ask(context.Background(), target, rest, at(now), says(Answer(random.IntN(3))))
	case 9:
		c := challenge("Basic")
		c.At = now
		s.SaveChallenge(target, c)
	case 10:
		s.Challenge(target, now)
	case 11:
		s.AskedRefs(group, target, now)
		s.DidAskRefs(group, target, now)
	case 12:
		s.RememberGroup(network, now)
		s.GroupRemembered(network, now)
		if err := s.ImportGroups(s.ExportGroups(now), now); err != nil {
			t.Error(err)
		}
	case 13:
		s.Snapshot()
	}
}

// checkLists walks every list of the proofs: each held pair is in the list of
// its group exactly once, and the counters agree.
func (p *proofs) checkLists(t *testing.T) {
	held, linked := 0, 0
	for i := p.table.newest; i != none; i = p.table.entry(i).older {
		for _, x := range p.table.entry(i).value.pairs {
			if x.held {
				held++
			}
		}
	}
	for group, head := range p.heads {
		newer := pairRef(0)
		for r := head; r != 0; r = p.pair(r).older {
			x := p.pair(r)
			if !x.held || x.group != group || x.newer != newer {
				t.Fatalf("the list of group %d is broken", group)
			}
			newer = r
			if linked++; linked > held {
				t.Fatal("a pair is linked twice")
			}
		}
	}
	if held != linked || held != p.pairs {
		t.Errorf("%d pairs held, %d linked, %d counted", held, linked, p.pairs)
	}
}
