package gate

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"
)

func pkt(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }

func fetch(lines ...string) string {
	s := pkt("command=fetch") + pkt("agent=git/2.39.5") + "0001" + pkt("thin-pack")
	for _, l := range lines {
		s += pkt(l + "\n")
	}
	return s + "0000"
}

const oid = "0123456789012345678901234567890123456789"

func TestShape(t *testing.T) {
	haves := strings.Repeat("x", 0)
	for range 16 {
		haves += pkt("have " + oid + "\n")
	}
	cases := []struct {
		name string
		body string
		want shape
	}{
		{"ls-refs", pkt("command=ls-refs\n") + "0001" + pkt("peel\n") + "0000", shapeRefs},
		{"clone v2", fetch("want "+oid, "done"), shapeClone},
		{"clone v0", pkt("want "+oid+" multi_ack_detailed side-band-64k agent=x\n") + "0000" + pkt("done\n"), shapeClone},
		{"fetch", fetch("want "+oid, "have "+oid, "done"), shapeFetch},
		{"round v2", fetch("want "+oid, "have "+oid), shapeRound},
		{"round v0", pkt("want "+oid+" multi_ack\n") + "0000" + haves + "0000", shapeRound},
		{"partial", fetch("want "+oid, "filter blob:none", "done"), shapePartial},
		{"shallow v2", fetch("want "+oid, "deepen 1", "done"), shapeShallow},
		{"shallow v0, first", pkt("want "+oid+" shallow\n") + pkt("deepen 1") + "0000", shapeRound},
		{"push.negotiate", fetch("wait-for-done", "have "+oid), shapeNegotiate},
		{"flush", "0000", shapeRefs},
		{"no packets", "hello world", shapeUnknown},
		{"cut", pkt("command=fetch") + "0001" + "00ff", shapeUnknown},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := shapeOf([]byte(c.body), "", true); got != c.want {
				t.Errorf("plain: got %v, want %v", got, c.want)
			}
			var z bytes.Buffer
			zw := gzip.NewWriter(&z)
			_, _ = zw.Write([]byte(c.body))
			_ = zw.Close()
			if got := shapeOf(z.Bytes(), "gzip", true); got != c.want {
				t.Errorf("gzip: got %v, want %v", got, c.want)
			}
		})
	}
}

// A clone that hides behind a peek's worth of wants counts as dear: undecided
// never buys the cheap class.
func TestShapeUndecidedIsDear(t *testing.T) {
	var b strings.Builder
	b.WriteString(pkt("command=fetch") + "0001")
	for b.Len() < shapePeek+100 {
		b.WriteString(pkt("want " + oid + "\n"))
	}
	b.WriteString(pkt("have "+oid+"\n") + "0000")
	if got := shapeOf([]byte(b.String()), "", true); !got.dear() {
		t.Errorf("got %v, which is not dear", got)
	}
}

func FuzzShape(f *testing.F) {
	f.Add([]byte(fetch("want "+oid, "done")), "gzip", true)
	f.Add([]byte("0000"), "", false)
	f.Add([]byte("ffff"), "", true)
	f.Fuzz(func(t *testing.T, data []byte, encoding string, whole bool) {
		s := shapeOf(data, encoding, whole)
		_ = s.String()
		if encoding == "br" && s != shapeUnknown {
			t.Fatalf("a body in an unknown encoding has shape %v", s)
		}
	})
}
