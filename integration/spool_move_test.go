package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// TestSpoolMoves: a reload that names another directory takes what is kept along while deliveries go on coming. Each arrives
// once, in the order of its repository.
func TestSpoolMoves(t *testing.T) {
	l := startLedger(t)
	l.down()
	k := startKeeper(t, "always", l.addr, "", "")
	const repositories, before, during = 3, 300, 100
	var taken [repositories][]int
	for n := range before {
		r := n % repositories
		k.want(t, fmt.Sprintf("team/app%d", r), n, http.StatusAccepted)
		taken[r] = append(taken[r], n)
	}
	next := filepath.Join(harness.TempDir(t), "next")
	reloaded := make(chan error, 1)
	go func() { reloaded <- k.Reload(harness.Config{Sites: k.sites(next, "")}) }()
	for n := before; n < before+during; n++ {
		r := n % repositories
		switch status := k.send(fmt.Sprintf("team/app%d", r), n); status {
		case http.StatusAccepted:
			taken[r] = append(taken[r], n)
		case 0: // the connection ended with the old server
		default:
			t.Errorf("delivery %d during the move: answered %d", n, status)
		}
	}
	if err := <-reloaded; err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, time.Minute, "the move", func() error {
		if s := k.spool(t); s.Dir != next || s.Moving || s.Depth < before {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	l.up(t)
	k.waitEmpty(t, time.Minute)
	all := l.all()
	for r := range repositories {
		var got []int
		for _, a := range first(all, fmt.Sprintf("team/app%d", r)) {
			if slices.Contains(taken[r], a.n) {
				got = append(got, a.n)
			}
		}
		if !slices.Equal(got, taken[r]) {
			t.Errorf("team/app%d: %v, acknowledged %v", r, got, taken[r])
		}
	}
	seen := map[string]bool{}
	for _, a := range all {
		if seen[a.id] {
			t.Errorf("%+v came twice", a)
		}
		seen[a.id] = true
	}
	out, code := k.Command(t, "admission", "deliveries", "list", "--dir", k.dir)
	if code != 0 || !strings.Contains(out, "nothing is kept") {
		t.Errorf("the old directory: %d %s", code, out)
	}
}

// TestDeliveriesCommand: what is kept can be listed, shown and exported from the files while the gateway is down, and replayed
// and dropped while it runs.
func TestDeliveriesCommand(t *testing.T) {
	l := startLedger(t)
	l.behave(func(arrival) int { return http.StatusForbidden })
	k := startKeeper(t, "always", l.addr, "", "")
	for n := range 3 {
		k.want(t, "team/app", n, http.StatusAccepted)
	}
	harness.Eventually(t, 20*time.Second, "three dead", func() error {
		if s := k.spool(t); s.Dead != 3 {
			return fmt.Errorf("%d dead", s.Dead)
		}
		return nil
	})
	config := filepath.Join(k.Dir, "Caddyfile")
	run := func(args ...string) string {
		t.Helper()
		out, code := k.Command(t, append([]string{"admission", "deliveries"}, args...)...)
		if code != 0 {
			t.Fatalf("%v: %s", args, out)
		}
		return out
	}
	ids := func(out string) (list []string) {
		t.Helper()
		var answer struct {
			Deliveries []struct{ ID, Delivery, Dead, Recovery string }
		}
		if err := json.Unmarshal([]byte(out[strings.Index(out, "{\n"):]), &answer); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		for _, d := range answer.Deliveries {
			if d.Dead != "refused" || !strings.Contains(d.Recovery, "replay") {
				t.Errorf("%+v", d)
			}
			list = append(list, d.ID)
		}
		return list
	}
	running := ids(run("list", "--json", "--config", config))
	k.Kill()
	for _, from := range [][]string{{"--dir", k.dir}, {"--config", config}} {
		if down := ids(run(append([]string{"list", "--json"}, from...)...)); !slices.Equal(down, running) || len(down) != 3 {
			t.Errorf("while down with %v: %v, want %v", from, down, running)
		}
		if out := run(append([]string{"show", running[0], "--body"}, from...)...); !strings.Contains(out, `"n":0`) || strings.Contains(out, "sha256=") {
			t.Errorf("show: %s", out)
		}
		if out := run(append([]string{"export"}, from...)...); strings.Count(out, `"delivery":`) != 3 {
			t.Errorf("export: %s", out)
		}
	}
	if out, code := k.Command(t, "admission", "deliveries", "replay", running[0], "--config", config); code == 0 || !strings.Contains(out, "is Caddy running there?") {
		t.Errorf("replay while down: %d %s", code, out)
	}
	l.behave(nil)
	k.Gateway.Start(t, harness.Config{Sites: k.sites(k.dir, "")})
	run("drop", running[1], "--config", config)
	if out := run("replay", "--dead", "--config", config); !strings.Contains(out, "2 of 2") {
		t.Errorf("replay: %s", out)
	}
	k.waitEmpty(t, 20*time.Second)
	if s := k.spool(t); s.Dead != 0 || s.Replayed["delivered"] != 2 {
		t.Errorf("%+v", s)
	}
}
