package cases

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fake starts an upstream with a default behaviour.
func fake(t *testing.T, name, normal string) *upstream {
	t.Helper()
	var b behaviour
	if normal != "" {
		var err error
		if b, err = parseBehaviour(normal); err != nil {
			t.Fatal(err)
		}
	}
	u, err := newUpstream(name, newLedger(), b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.close)
	return u
}

// ask sends a registered request that overrides the behaviour.
func ask(t *testing.T, u *upstream, does string, w *wire) *exchange {
	t.Helper()
	var b behaviour
	if does != "" {
		var err error
		if b, err = parseBehaviour(does); err != nil {
			t.Fatal(err)
		}
	}
	if w.method == "" {
		w.method = "GET"
	}
	if w.target == "" {
		w.target = "/"
	}
	w.readAll = true
	w.id = "s#0.0"
	w.headers = append(w.headers, Header{requestHeader, w.id})
	u.ledger.register(&sent{id: w.id, step: "s", behaviour: b, wire: w, at: time.Now()})
	return get(t, u.addr, w)
}

func TestUpstreamBehaviours(t *testing.T) {
	for _, x := range []struct {
		does   string
		status int
		bytes  int64
		whole  bool
	}{
		{"", 200, 3, true},
		{"ok200", 200, 3, true},
		{"ok302", 302, 6, true},
		{"status:503", 503, 20, true},
		{"challenge401", 401, 24, true},
		{"stream:100KiB", 200, 100 << 10, true},
		{"slow:20,stream:10", 200, 10, true},
		{"silence:20,stream:64KiB", 200, 64 << 10, true},
		{"stream:1MiB,close-mid", 200, 1 << 20, false},
		{"count", 200, 3, true},
		{"103-then-200", 200, 3, true},
		{"trailers", 200, 3, true},
		{"sideband:64KiB", 200, 64<<10 + 2*4 + 4, true},
		{"sideband:progress:5,sideband:1KiB", 200, 3*(4+18) + 1024 + 4 + 4, true},
		{"sse:5,stream:10", 200, 0, true},
		{"ignores-disconnect:20", 200, 3, true},
	} {
		e := ask(t, fake(t, ciUpstream, ""), x.does, &wire{})
		if e.status != x.status || e.complete != x.whole || (x.bytes > 0 && e.bodyBytes != x.bytes) {
			t.Errorf("%q: status %d, %d bytes, complete %v; want %d, %d, %v", x.does, e.status, e.bodyBytes, e.complete, x.status, x.bytes, x.whole)
		}
		if x.does == "103-then-200" && (len(e.info) != 1 || e.info[0] != 103) {
			t.Errorf("informational %v, want 103", e.info)
		}
		if x.does == "trailers" && e.trailer.Get("Grpc-Status") != "0" {
			t.Errorf("trailers %v", e.trailer)
		}
	}
}

func TestUpstreamEarlyAnswerLeavesTheBody(t *testing.T) {
	u := fake(t, gitUpstream, "status:401-early")
	e := ask(t, u, "", &wire{method: "POST", body: make([]byte, 4<<20), declared: 4 << 20})
	if e.status != 401 {
		t.Fatalf("status %d, %v", e.status, e.err)
	}
	if c := u.ledger.seen(nil)[0]; c.bodyBytes != 0 {
		t.Errorf("%d bytes were read", c.bodyBytes)
	}
}

func TestUpstreamHoldsUntilReleased(t *testing.T) {
	u := fake(t, gitUpstream, "")
	ended := make(chan *exchange)
	go func() { ended <- ask(t, u, "hold", &wire{}) }()
	for !u.ledger.arrived("s#0.0") {
		pause(t.Context(), time.Millisecond)
	}
	select {
	case <-ended:
		t.Fatal("ended before the release")
	default:
	}
	u.ledger.release(map[string]int{"s": 1}, "s")
	if e := <-ended; e.status != 200 {
		t.Errorf("status %d", e.status)
	}
	if e := ask(t, u, "hold", &wire{}); e.status != 200 {
		t.Errorf("after the release: status %d", e.status)
	}
}

func TestFakeForgeWantsACredentialForPushes(t *testing.T) {
	u := fake(t, gitUpstream, "")
	u.ledger.accept("Authorization Basic good")
	for _, x := range []struct {
		target, credential string
		status             int
	}{
		{"/o/r.git/info/refs?service=git-receive-pack", "", 401},
		{"/o/r.git/info/refs?service=git-receive-pack", "Basic bad", 401},
		{"/o/r.git/info/refs?service=git-receive-pack", "Basic good", 200},
		{"/o/r.git/info/refs?service=git-upload-pack", "", 200},
		{"/o/r", "", 200},
	} {
		w := &wire{target: x.target}
		if x.credential != "" {
			w.headers = Headers{{"Authorization", x.credential}}
		}
		e := ask(t, u, "", w)
		if e.status != x.status || (x.status == 401) != (e.header.Get("WWW-Authenticate") != "") {
			t.Errorf("%s %q: %d %v", x.target, x.credential, e.status, e.header)
		}
	}
}

func TestClosedUpstreamRefusesAndComesBack(t *testing.T) {
	u := fake(t, ciUpstream, "connrefused")
	if c, err := net.Dial("tcp", u.addr); err == nil {
		c.Close()
		t.Fatal("the port is open")
	}
	if err := u.become(behaviour{{do: doOK, status: 200}}); err != nil {
		t.Fatal(err)
	}
	if e := ask(t, u, "", &wire{}); e.status != 200 {
		t.Errorf("status %d, %v", e.status, e.err)
	}
}

func TestWebSocketEchoes(t *testing.T) {
	u := fake(t, ciUpstream, "")
	w := &world{c: &Case{}, book: newBook(), ledger: u.ledger, tokens: newTokens(u.addr), gateway: &gateway{plain: u.addr}, runner: &Runner{}}
	defer w.book.closeConnections()
	if err := w.webSocket(t.Context(), &Step{Op: "ws", Name: "ws", Path: "/wsagents/", N: 2, ThenSend: "ping"}); err != nil {
		t.Fatal(err)
	}
	for _, e := range w.book.of("ws") {
		if !e.upgraded || !e.echoed {
			t.Errorf("upgraded %v, echoed %v, %v", e.upgraded, e.echoed, e.err)
		}
	}
}

// TestRealGitPushes pushes more than git's buffer, so that the body comes
// chunked behind a 4-byte probe.
func TestRealGitPushes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	u := fake(t, gitUpstream, "git-http")
	u.ledger.accept("Authorization Basic ZGV2OnB3")
	var err error
	if u.git, err = newGitServer(ctx, filepath.Join(t.TempDir(), "root"), []string{"o/r.git"}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	w := &world{c: &Case{}, dir: dir, book: newBook(), ledger: u.ledger, tokens: newTokens(u.addr), runner: &Runner{}}
	push := func(name, user string) *exchange {
		step := &Step{Op: "git", Name: name, RepoWithBlob: 3 << 20, Cmd: []byte(`"push http://` + user + `@{{gw}}/o/r.git HEAD:refs/heads/` + name + `"`)}
		if err := w.gitClient(ctx, step); err != nil {
			t.Fatal(err)
		}
		return w.book.of(name)[0]
	}
	if e := push("good", "dev:pw"); e.exit != 0 {
		t.Fatalf("exit %d: %s", e.exit, e.stderr)
	}
	if e := push("bad", "dev:wrong"); e.exit == 0 {
		t.Error("a push with a wrong password passed")
	}
	if _, err := os.Stat(filepath.Join(u.git.root, "o/r.git/refs/heads/good")); err != nil {
		t.Error(err)
	}
	chunked := 0
	for _, c := range u.ledger.seen(nil) {
		if c.method == http.MethodPost && strings.HasSuffix(c.uri, "/git-receive-pack") && c.bodyBytes > 3<<20 && c.header.Get("Content-Length") == "" {
			chunked++
		}
	}
	if chunked != 1 {
		t.Errorf("%d chunked packs, want 1", chunked)
	}
}
