package gate

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"pgregory.net/rapid"

	"github.com/caddy-admission/gateway/admission"
)

func TestBodyIsReplayedByteForByte(t *testing.T) {
	for _, size := range []int{0, 1, bodyStep - 1, bodyStep, bodyStep + 1, 100_000, bodyCallerMax + 5} {
		s := &State{bodies: newBodyAccount()}
		want := bytes.Repeat([]byte("git "), size/4+1)[:size]
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(want))
		b, err := s.readBody(httptest.NewRecorder(), r, 7, 1, admission.SlowPolicy{})
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		got, err := io.ReadAll(r.Body)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes: %d came back, %v", size, len(got), err)
		}
		if b.complete != (size <= bodyCallerMax) {
			t.Errorf("%d bytes: complete is %v", size, b.complete)
		}
		b.lease.close()
		b.lease.close()
		if s.bodies.used != 0 || s.bodies.small != 0 || len(s.bodies.callers) != 0 {
			t.Errorf("%d bytes: left over: %+v", size, s.bodies)
		}
	}
}

// One caller's bodies never take another's room, and a used-up account still
// lets small bodies pass.
func TestBodyAccountBounds(t *testing.T) {
	a := newBodyAccount()
	var mine []*bodyLease
	for range bodyCallerCount {
		l, err := a.open(1, 1)
		if err != nil {
			t.Fatal(err)
		}
		mine = append(mine, l)
	}
	if _, err := a.open(1, 1); !errors.Is(err, errBodyCaller) {
		t.Errorf("one body too many of a caller: %v", err)
	}
	if l, err := a.open(1, 64); err != nil {
		t.Errorf("an address that stands for 64 callers sends no more than one caller: %v", err)
	} else {
		l.close()
	}
	mine[15].arrive()
	if l, err := a.open(1, 1); err != nil {
		t.Errorf("a body that has arrived stands in the way of the next: %v", err)
	} else {
		l.close()
	}
	for full := false; !full; {
		var err error
		if full, err = mine[0].grow(1 << 20); err != nil {
			t.Fatal(err)
		}
	}
	if a.used != bodyCallerMax {
		t.Errorf("a caller holds %d bytes, want %d", a.used, bodyCallerMax)
	}
	for k := admission.Key(100); a.used+bodyCallerMax <= bodyAccountMax; k++ {
		l, _ := a.open(k, 1)
		if _, err := l.grow(bodyCallerMax); err != nil {
			t.Fatal(err)
		}
	}
	late, _ := a.open(999, 1)
	if _, err := late.grow(bodySmall); err != nil {
		t.Errorf("a small body does not pass a full account: %v", err)
	}
	if _, err := late.grow(1); !errors.Is(err, errBodyShared) {
		t.Errorf("a large body passes a full account: %v", err)
	}
}

func TestBodyAccountReturnsToZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := newBodyAccount()
		var live []*bodyLease
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch {
			case len(live) == 0 || rapid.Bool().Draw(t, "open"):
				if l, err := a.open(admission.Key(rapid.IntRange(0, 4).Draw(t, "caller")), 1); err == nil {
					live = append(live, l)
				}
			case rapid.IntRange(0, 3).Draw(t, "arrive") == 0:
				live[rapid.IntRange(0, len(live)-1).Draw(t, "which")].arrive()
			case rapid.Bool().Draw(t, "grow"):
				_, _ = live[rapid.IntRange(0, len(live)-1).Draw(t, "which")].grow(int64(rapid.IntRange(1, 4<<20).Draw(t, "n")))
			default:
				i := rapid.IntRange(0, len(live)-1).Draw(t, "close")
				live[i].close()
				live = append(live[:i], live[i+1:]...)
			}
			if a.used > bodyAccountMax || a.small > bodySmallCount {
				t.Fatalf("above the bound: %d bytes, %d small", a.used, a.small)
			}
		}
		for _, l := range live {
			l.close()
		}
		if a.used != 0 || a.small != 0 || len(a.callers) != 0 {
			t.Fatalf("left over: %d bytes, %d small, %d callers", a.used, a.small, len(a.callers))
		}
	})
}
