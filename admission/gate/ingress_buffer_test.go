package gate

import (
	"errors"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/caddy-admission/gateway/admission"
)

// TestBodiesShareTheirMemory: large bodies that come one after the other are
// read into the same memory, whether they are refused or forwarded.
func TestBodiesShareTheirMemory(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	u := &hookReceiver{status: http.StatusOK}
	_, g := newIngressGate(t, bucketOf(1<<40, 1e9), IngressConfig{Hooks: []HookConfig{githubHook(t, "/hooks/ci")}})
	body := strings.Repeat("0", 8<<20)
	allocated := func(d delivery, want int) uint64 {
		t.Helper()
		r := parse(t, d)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if w, _ := direct(g, r, u.discard); w.Code != want {
			t.Fatalf("status %d, want %d", w.Code, want)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	genuine, forged := delivery{body: body}, delivery{body: body, forged: true}
	if first := allocated(forged, http.StatusUnauthorized); first < 8<<20 {
		t.Fatalf("the first body took %d bytes: this test measures nothing", first)
	}
	for i, d := range []delivery{forged, genuine, genuine, forged} {
		want := http.StatusOK
		if d.forged {
			want = http.StatusUnauthorized
		}
		if n := allocated(d, want); n > 4<<20 {
			t.Errorf("body %d allocated %d bytes", i, n)
		}
	}
}

// A collection takes what nobody uses.
func TestUnusedBodyMemoryGoes(t *testing.T) {
	s := &bodyBuffers{}
	s.give(s.take(8 << 20))
	runtime.GC()
	runtime.GC()
	if b := s.take(1); cap(b) >= 8<<20 {
		t.Errorf("%d bytes outlived two collections", cap(b))
	}
}

// TestLentBodyIsTakenBack: whoever still reads a body when the handlers behind
// have returned fails, and never sees the next one's bytes.
func TestLentBodyIsTakenBack(t *testing.T) {
	var kept []io.ReadCloser
	_, g := newIngressGate(t, admission.Config{}, IngressConfig{Hooks: []HookConfig{githubHook(t, "/hooks/ci")}})
	first := strings.Repeat("1", 2<<20)
	next := func(w http.ResponseWriter, r *http.Request) error {
		again, err := r.GetBody()
		if err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, again, 1<<20); err != nil {
			t.Errorf("second reader: %v", err)
		}
		kept = append(kept, r.Body, again)
		w.WriteHeader(http.StatusOK)
		return nil
	}
	for _, body := range []string{first, strings.Repeat("2", 2<<20)} {
		if w, _ := direct(g, parse(t, delivery{body: body}), next); w.Code != http.StatusOK {
			t.Fatalf("status %d", w.Code)
		}
	}
	for i, r := range kept {
		if n, err := r.Read(make([]byte, 10)); n != 0 || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("reader %d after the answer: %d bytes, %v", i, n, err)
		}
	}
}
