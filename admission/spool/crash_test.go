package spool

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

const crashEnv = "SPOOL_CRASH_DIR"

// TestMain runs the child of TestKill instead of the tests when asked to.
func TestMain(m *testing.M) {
	if dir := os.Getenv(crashEnv); dir != "" {
		crashChild(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// crashChild keeps and settles deliveries for ever and prints a line for each
// once that is acknowledged.
func crashChild(dir string) {
	life, _ := strconv.Atoi(os.Getenv(crashEnv + "_LIFE"))
	s, err := Open(Config{Dir: dir, SegmentBytes: 64 << 10})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	var mu sync.Mutex
	say := func(what, repo string, n int) { // out before it returns
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(what, repo, n)
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			repo := fmt.Sprintf("repo%d", w)
			for n := life * 1_000_000; ; n++ {
				say("try", repo, n)
				id, err := s.Keep(context.Background(), "/hook", memDelivery(repo, n))
				if err != nil {
					say("error "+err.Error(), repo, n)
					return
				}
				say("kept", repo, n)
				if n%3 == 0 {
					say("drop", repo, n)
					_ = s.Drop(context.Background(), id)
				}
			}
		})
	}
	wg.Wait()
}

// TestKill kills the process at a random moment under load, again and again
// on the same directory: every acknowledged delivery is there afterwards, in
// order and unchanged, and nothing that was not sent.
func TestKill(t *testing.T) {
	lives := 50
	if testing.Short() {
		lives = 5
	}
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(rand.Uint64(), 1))
	l := newLedger()
	for life := range lives {
		runAndKill(t, dir, life, 1+r.IntN(120), l)
		s, err := Open(Config{Dir: dir, SegmentBytes: 64 << 10})
		if err != nil {
			t.Fatalf("life %d: %v", life, err)
		}
		if err := l.check(s); err != nil {
			t.Fatalf("life %d: %v", life, err)
		}
		if life%10 == 9 { // so that files come and go
			for id := range l.acked {
				l.drop(s, id)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.acked) < lives {
		t.Errorf("only %d acknowledged: the run proves little", len(l.acked))
	}
}

// runAndKill reads the child's lines and kills it after some of them. What it
// printed before it died counts.
func runAndKill(t *testing.T, dir string, life, lines int, l *ledger) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"="+dir, fmt.Sprintf("%s_LIFE=%d", crashEnv, life))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sc := bufio.NewScanner(out)
	for n := 0; sc.Scan(); n++ {
		f := strings.Fields(sc.Text())
		id := ""
		if len(f) == 3 {
			id = f[1] + "-" + f[2]
		}
		switch f[0] {
		case "try":
			l.tried[id] = true
		case "kept":
			l.acked[id] = ""
		case "drop":
			l.going[id] = true
		default:
			t.Errorf("child: %s", sc.Text())
		}
		if n == lines {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	_ = cmd.Wait() // it was killed
}
