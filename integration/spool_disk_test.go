package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caddy-admission/gateway/integration/harness"
)

// mountDisk makes dir a file system of its own of the given size.
func mountDisk(t *testing.T, dir, size string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("spool-test", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatalf("a small file system needs root and the right to mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// site asks for something that has nothing to do with deliveries.
func (k *keeper) site(t *testing.T) {
	t.Helper()
	resp, err := http.Get("http://" + k.addr + "/anything")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the site answers %s", resp.Status)
	}
}

// TestDiskFull: while the spool's disk is full a delivery is refused with 503, the rest of the site goes on, the gateway starts,
// and when there is room again deliveries are taken again. Everything that was acknowledged is delivered, nothing else.
func TestDiskFull(t *testing.T) {
	l := startLedger(t)
	release := l.hang()
	defer release()
	k := newKeeper(t, "always", l.addr, "", "")
	mountDisk(t, k.dir, "4m")
	config := harness.Config{Sites: k.sites(k.dir, "")}
	k.Gateway = harness.StartGateway(t, config)
	var taken []int
	n := 0
	send := func() (status int) {
		if status = k.send("team/app", n); status == http.StatusAccepted {
			taken = append(taken, n)
		}
		n++
		return status
	}
	if status := send(); status != http.StatusAccepted {
		t.Fatalf("answered %d", status)
	}
	ballast := filepath.Join(k.dir, "ballast")
	fill(t, ballast)
	refused := func() error { // what the last page of the log holds still fits
		if status := send(); status != http.StatusServiceUnavailable {
			return fmt.Errorf("answered %d", status)
		}
		return nil
	}
	harness.Eventually(t, 30*time.Second, "a refusal", refused)
	k.site(t)
	if s := k.spool(t); !s.DiskFailing {
		t.Error("the state does not say that the disk fails")
	}
	k.Kill()
	k.Gateway.Start(t, config)
	k.site(t)
	harness.Eventually(t, 30*time.Second, "a refusal after the restart", refused)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 30*time.Second, "a delivery that is taken again", func() error {
		if status := send(); status != http.StatusAccepted {
			return fmt.Errorf("answered %d", status)
		}
		return nil
	})
	release()
	k.waitEmpty(t, time.Minute)
	var got []int
	for _, a := range first(l.all(), "team/app") {
		got = append(got, a.n)
	}
	t.Logf("%d of %d taken", len(taken), n)
	if !slices.Equal(got, taken) {
		t.Errorf("delivered %v, acknowledged %v", got, taken)
	}
}

// TestReadOnlyDisk: the gateway starts although the disk of its spool is read-only: the site goes on, deliveries are refused, the
// state tells. When the disk can be written again, what was kept before is delivered and new deliveries are taken.
func TestReadOnlyDisk(t *testing.T) {
	l := startLedger(t)
	l.down()
	k := newKeeper(t, "always", l.addr, "", "")
	mountDisk(t, k.dir, "4m")
	config := harness.Config{Sites: k.sites(k.dir, "")}
	k.Gateway = harness.StartGateway(t, config)
	k.want(t, "team/app", 0, http.StatusAccepted)
	k.Kill()
	remount(t, k.dir, unix.MS_RDONLY)
	k.Gateway.Start(t, config)
	k.site(t)
	k.want(t, "team/app", 1, http.StatusServiceUnavailable)
	if s := k.spool(t); !s.DiskFailing || s.Dir != k.dir {
		t.Errorf("the state does not say that the disk fails: %+v", s)
	}
	remount(t, k.dir, 0)
	l.up(t)
	harness.Eventually(t, 30*time.Second, "a delivery that is taken again", func() error {
		if status := k.send("team/app", 2); status != http.StatusAccepted {
			return fmt.Errorf("answered %d", status)
		}
		return nil
	})
	k.waitEmpty(t, 30*time.Second)
	if all := first(l.all(), "team/app"); len(all) != 2 || all[0].n != 0 || all[1].n != 2 {
		t.Errorf("delivered %v", all)
	}
}

func remount(t *testing.T, dir string, flags uintptr) {
	t.Helper()
	if err := unix.Mount("spool-test", dir, "tmpfs", unix.MS_REMOUNT|flags, ""); err != nil {
		t.Fatal(err)
	}
}

// fill writes until nothing more fits.
func fill(t *testing.T, path string) {
	t.Helper()
	ballast, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ballast.Close()
	for err == nil {
		_, err = ballast.Write(make([]byte, 4<<10))
	}
}

// TestDamagedSpool: damage in the middle of the files costs the deliveries it hit and no other, and an operator sees it.
func TestDamagedSpool(t *testing.T) {
	l := startLedger(t)
	l.down()
	k := newKeeper(t, "always", l.addr, "", "")
	config := harness.Config{Sites: k.sites(k.dir, "")}
	k.Gateway = harness.StartGateway(t, config)
	const deliveries = 20
	for n := range deliveries {
		k.want(t, fmt.Sprintf("team/app%d", n), n, http.StatusAccepted)
	}
	k.Kill()
	logs, err := filepath.Glob(filepath.Join(k.dir, "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no log files: %v", err)
	}
	raw, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	copy(raw[len(raw)/2:], strings.Repeat("damage", 30))
	if err := os.WriteFile(logs[0], raw, 0o600); err != nil {
		t.Fatal(err)
	}
	k.Gateway.Start(t, config)
	l.up(t)
	k.waitEmpty(t, time.Minute)
	arrived := map[string]bool{}
	for _, a := range l.all() {
		arrived[a.repository] = true
	}
	s := k.spool(t)
	t.Logf("%d of %d arrived, %d damaged stretches, %d dead", len(arrived), deliveries, s.Damaged, s.Dead)
	if len(arrived) < deliveries-2 || len(arrived) == deliveries || s.Damaged == 0 {
		t.Errorf("%d of %d arrived, %d damaged stretches; want one or two missing, and told", len(arrived), deliveries, s.Damaged)
	}
	if !strings.Contains(k.Output(), "damaged") {
		t.Error("no line of the log tells of the damage")
	}
}

// TestForeignSpool: a directory in another format, or in use by another gateway, is refused with a clear message: at the start,
// and at a reload, which leaves the old spool in use. Nothing in it is changed.
func TestForeignSpool(t *testing.T) {
	l := startLedger(t)
	l.down()
	k := startKeeper(t, "always", l.addr, "", "")
	k.want(t, "team/app", 0, http.StatusAccepted)

	old := filepath.Join(harness.TempDir(t), "old")
	if err := os.MkdirAll(old, 0o700); err != nil {
		t.Fatal(err)
	}
	harness.WriteSecret(t, filepath.Join(old, "format"), `{"format":0,"salt":"00"}`)
	used := startKeeper(t, "always", l.addr, "", "")

	for dir, says := range map[string]string{
		old:      "has format 0, this program knows format",
		used.dir: "in use by another process",
	} {
		err := k.Reload(harness.Config{Sites: k.sites(dir, "")})
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), dir) {
			t.Errorf("a reload with %s: %v", dir, err)
		}
		file := filepath.Join(k.Dir, "other")
		harness.WriteFile(t, file, k.Caddyfile(harness.Config{Sites: k.sites(dir, "")}))
		if out, code := k.Command(t, "validate", "--config", file, "--adapter", "caddyfile"); code != 0 {
			t.Errorf("validate opens the spool: %s", out)
		}
	}
	if text, err := os.ReadFile(filepath.Join(old, "format")); err != nil || string(text) != `{"format":0,"salt":"00"}` {
		t.Errorf("the old directory was changed: %s %v", text, err)
	}
	k.want(t, "team/app", 1, http.StatusAccepted)
	l.up(t)
	k.waitEmpty(t, time.Minute)
}
