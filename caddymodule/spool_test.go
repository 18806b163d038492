package caddymodule

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-admission/gateway/admission/spool"
)

// TestDeliver: a verified delivery goes to the receiver with what it needs to
// verify it again, its answer goes to the sender, and nothing behind the
// gateway sees it. One that the receiver does not take in time is kept.
func TestDeliver(t *testing.T) {
	ci := newReceiver(t)
	site := hookSite(t, "deliver", filepath.Join(t.TempDir(), "spool"), "overflow", ci.URL)
	s := start(t, site, func(http.ResponseWriter, *http.Request) { t.Error("the handler behind was asked") })
	status, body := s.deliver(1, "team/app")
	if status != http.StatusOK || body != "taken" {
		t.Errorf("%d %q, want the receiver's answer", status, body)
	}
	if id := <-ci.arrived; id != deliveryID(1) {
		t.Errorf("delivery %s", id)
	}
	header, path := ci.last()
	if path != "/build" || header.Get("X-Hub-Signature-256") == "" || header.Get("X-Github-Event") != "push" {
		t.Errorf("%s %v", path, header)
	}
	hold := make(chan struct{})
	ci.behave(0, hold)
	if err := s.load(strings.Replace(site, "fresh_wait 7s", "fresh_wait 10ms", 1)); err != nil {
		t.Fatal(err)
	}
	if status, _ = s.deliver(2, "team/app"); status != http.StatusAccepted {
		t.Errorf("%d, want 202 from a receiver that hangs", status)
	}
	if _, ids := kept(t, "deliver"); !slices.Equal(ids, []string{deliveryID(2)}) {
		t.Errorf("kept %v", ids)
	}
	if w := pool(t, "deliver").Ingress.Webhooks; w["kept"] != 1 || w["delivered"] != 1 {
		t.Errorf("outcomes %v", w)
	}
	close(hold)
}

// TestForgedIsNotKept: what is not verified never reaches the spool.
func TestForgedIsNotKept(t *testing.T) {
	ci := newReceiver(t)
	s := start(t, hookSite(t, "forged", filepath.Join(t.TempDir(), "spool"), "always", ci.URL), nothing)
	r, _ := http.NewRequest(http.MethodPost, "http://"+s.addr+"/hooks/ci", strings.NewReader("{}"))
	r.Header = http.Header{"Content-Type": {"application/json"}, "X-Github-Event": {"push"}, "X-Github-Delivery": {deliveryID(1)},
		"X-Hub-Signature-256": {"sha256=" + strings.Repeat("0", 64)}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("%d, want 401", resp.StatusCode)
	}
	if got := keepers.list()[0].sp.Snapshot(); got.Kept != 0 || len(got.Refused) != 0 {
		t.Errorf("the spool saw it: %+v", got)
	}
}

// TestSpoolMoves: a reload that names another directory takes what is kept
// along, in order, and leaves nothing behind.
func TestSpoolMoves(t *testing.T) {
	ci := newReceiver(t)
	ci.behave(http.StatusServiceUnavailable, nil)
	first, second := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	s := start(t, hookSite(t, "moves", first, "always", ci.URL), nothing)
	var want []string
	for n := range 5 {
		if status, body := s.deliver(n, "team/app"); status != http.StatusAccepted {
			t.Fatalf("%d %s", status, body)
		}
		want = append(want, deliveryID(n))
	}
	if err := s.load(hookSite(t, "moves", second, "always", ci.URL)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the move", func() bool { dir, _ := kept(t, "moves"); return dir == second })
	if _, ids := kept(t, "moves"); !slices.Equal(ids, want) {
		t.Errorf("kept %v", ids)
	}
	waitFor(t, "the end of the old directory", func() bool { // its last notes are written when it is closed
		r, err := spool.OpenReader(first, nil)
		if err != nil {
			t.Fatal(err)
		}
		return len(r.List(spool.Filter{})) == 0
	})
	if status, _ := s.deliver(9, "team/app"); status != http.StatusAccepted {
		t.Errorf("%d after the move", status)
	}
}

// TestRejectedReloadKeepsTheSpool: hooks and directory of a configuration that
// fails to start are given back.
func TestRejectedReloadKeepsTheSpool(t *testing.T) {
	ci, other := newReceiver(t), newReceiver(t)
	dir := filepath.Join(t.TempDir(), "a")
	s := start(t, hookSite(t, "rejected", dir, "always", ci.URL), nothing)
	second := filepath.Join(t.TempDir(), "b")
	next := hookSite(t, "rejected", second, "always", other.URL)
	raw := s.json(next, func(all map[string]any) {
		all["apps"].(map[string]any)["admission_test_failing"] = map[string]any{}
	})
	for started := false; !started; { // apps start in random order; the spool's must have, before the other fails
		if err := caddy.Load(raw, true); err == nil {
			t.Fatal("a configuration whose start fails was taken")
		}
		_, err := os.Stat(second)
		started = err == nil
	}
	if status, _ := s.deliver(1, "team/app"); status != http.StatusAccepted {
		t.Fatalf("%d", status)
	}
	select {
	case id := <-ci.arrived:
		if id != deliveryID(1) {
			t.Errorf("delivery %s", id)
		}
	case <-other.arrived:
		t.Error("it went to the receiver of the rejected configuration")
	}
	if got, _ := kept(t, "rejected"); got != dir {
		t.Errorf("kept in %s", got)
	}
}

// TestReloadKeepsTheSpoolOpen: deliveries during reloads are taken, each that
// was acknowledged arrives.
func TestReloadKeepsTheSpoolOpen(t *testing.T) {
	ci := newReceiver(t)
	dir := filepath.Join(t.TempDir(), "spool")
	site := hookSite(t, "reloads", dir, "always", ci.URL)
	s := start(t, site, nothing)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 10 {
			if err := s.load(site + strings.Repeat("\n", i+1)); err != nil {
				t.Error(err)
			}
		}
	}()
	taken := map[string]bool{}
	for n, running := 0, true; running; n++ {
		select {
		case <-done:
			running = false
		default:
		}
		payload := fmt.Sprintf(`{"n":%d,"repository":{"full_name":"team/app%d"}}`, n, n%3)
		resp, body, err := s.tryPost("/hooks/ci", payload, deliveryID(n))
		switch {
		case err != nil: // the connection ended with the old server
		case resp.StatusCode == http.StatusAccepted:
			taken[deliveryID(n)] = true
		default:
			t.Errorf("delivery %d: %s %s", n, resp.Status, body)
		}
	}
	for len(taken) > 0 {
		delete(taken, <-ci.arrived)
	}
}

// TestGitLabTokenIsRestored: the token that the configuration knows is not on
// disk, and the receiver gets it.
func TestGitLabTokenIsRestored(t *testing.T) {
	ci := newReceiver(t)
	ci.behave(http.StatusServiceUnavailable, nil)
	dir := filepath.Join(t.TempDir(), "spool")
	s := start(t, fmt.Sprintf(`admission token {
		webhook /hooks/ci {
			profile gitlab-token
			secret_file %s
			keep always
			deliver %s
		}
		spool %s
	}
	test_upstream`, secretFile(t, hookToken), ci.URL, dir), nothing)
	r, _ := http.NewRequest(http.MethodPost, "http://"+s.addr+"/hooks/ci", strings.NewReader(`{"project":{"path_with_namespace":"team/app"}}`))
	r.Header = http.Header{"Content-Type": {"application/json"}, "X-Gitlab-Event": {"Push Hook"}, "X-Gitlab-Token": {hookToken}, "Idempotency-Key": {"k1"}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		t.Fatal(resp.Status)
	}
	<-ci.arrived
	if header, _ := ci.last(); header.Get("X-Gitlab-Token") != hookToken {
		t.Errorf("token %q", header.Get("X-Gitlab-Token"))
	}
	sp := keepers.list()[0].sp
	d, err := sp.Show(sp.List(spool.Filter{})[0].ID, true)
	if err != nil || !slices.Equal(d.Restored, []string{"X-Gitlab-Token"}) || d.Sealed {
		t.Errorf("%v %+v", err, d)
	}
}

// TestOneSpoolForEachPool: two pools of one configuration need two
// directories, in JSON as in a Caddyfile (testdata/adapt/spool_twice.txt).
func TestOneSpoolForEachPool(t *testing.T) {
	s := &server{t: t, addr: "127.0.0.1:1"}
	var cfg caddy.Config
	raw := s.json("respond ok", func(all map[string]any) {
		keep := map[string]any{"spool": map[string]any{"path": "/var/lib/caddy/x"}}
		all["apps"].(map[string]any)["admission"] = map[string]any{"pools": map[string]any{"a": keep, "b": keep}}
	})
	if err := json.Unmarshal(raw, &cfg); err != nil {
		t.Fatal(err)
	}
	if err := caddy.Validate(&cfg); err == nil || !strings.Contains(err.Error(), `admission b: spool: found "/var/lib/caddy/x", where pool a keeps`) {
		t.Errorf("%v", err)
	}
}

// TestValidateOpensNoSpool: checking a configuration makes no directory.
func TestValidateOpensNoSpool(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s := &server{t: t, addr: "127.0.0.1:1"}
	var cfg caddy.Config
	if err := json.Unmarshal(s.json(hookSite(t, "validate", dir, "always", "http://127.0.0.1:1"), nil), &cfg); err != nil {
		t.Fatal(err)
	}
	if err := caddy.Validate(&cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("validate made the directory: %v", err)
	}
}

// TestEveryProfileIsDeliveredWhole: no header that a receiver needs is dropped
// on the way through the spool.
func TestEveryProfileIsDeliveredWhole(t *testing.T) {
	for _, h := range []*Hook{
		{Path: "/a", Profile: "sourcehut", Deliver: "http://127.0.0.1:1"},
		{Path: "/b", Profile: "generic", Header: "X-Own-Signature", Algorithm: "sha512", Deliver: "http://127.0.0.1:1"},
	} {
		profile, err := h.profile()
		if err != nil {
			t.Fatal(err)
		}
		c := h.spoolHook(profile, webhookSecrets(t))
		if !slices.Contains(c.SecretHeaders, profile.Canonical()) {
			t.Errorf("%s: %v", h.Profile, c)
		}
		for _, name := range profile.Headers() {
			if !slices.Contains(c.Headers, name) {
				t.Errorf("%s: %s would be dropped", h.Profile, name)
			}
		}
	}
}

// TestSignedTimeIsKept: a delivery whose signature is good for some time only
// is kept with that time, so that none is replayed after it.
func TestSignedTimeIsKept(t *testing.T) {
	ci := newReceiver(t)
	ci.behave(http.StatusServiceUnavailable, nil)
	secret := base64.StdEncoding.EncodeToString([]byte(hookSecret))
	s := start(t, fmt.Sprintf(`admission signed {
		webhook /hooks/ci {
			profile standard-webhooks
			secret_file %s
			keep always
			deliver %s
		}
		spool %s/spool
	}
	test_upstream`, secretFile(t, secret), ci.URL, t.TempDir()), nothing)
	now := time.Now().Truncate(time.Second)
	stamp, body := strconv.FormatInt(now.Unix(), 10), `{"type":"build"}`
	mac := hmac.New(sha256.New, []byte(hookSecret))
	mac.Write([]byte("msg_1." + stamp + "." + body))
	r, _ := http.NewRequest(http.MethodPost, "http://"+s.addr+"/hooks/ci", strings.NewReader(body))
	r.Header = http.Header{"Content-Type": {"application/json"}, "Webhook-Id": {"msg_1"}, "Webhook-Timestamp": {stamp},
		"Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	list := keepers.list()[0].sp.List(spool.Filter{})
	if resp.StatusCode != http.StatusAccepted || len(list) != 1 || !list[0].NotAfter.Equal(now.Add(300*time.Second)) {
		t.Errorf("%s %+v, want it kept until %s", resp.Status, list, now.Add(300*time.Second))
	}
}
