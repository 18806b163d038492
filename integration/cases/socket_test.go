package cases

import "testing"

func TestPortsAreClaimedOnce(t *testing.T) {
	seen := map[string]bool{}
	for range 300 {
		addr := freeAddress()
		if seen[addr] {
			t.Fatalf("%s was given out twice", addr)
		}
		seen[addr] = true
	}
}
