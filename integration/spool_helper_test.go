package integration

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// ledger is a receiver that writes down every delivery that reaches it. It keeps its address when it goes down and comes back.
type ledger struct {
	addr string

	mu       sync.Mutex
	server   *http.Server
	answer   func(arrival) int // the status; it may take its time. nil: 200 at once
	arrivals []arrival
	inside   int
	done     int // answered with 2xx
}

// arrival is one attempt at a delivery. Inside counts those that were there with it, done those taken before it.
type arrival struct {
	id, repository string
	n              int
	sum            [sha256.Size]byte
	inside, done   int
}

func startLedger(t testing.TB) *ledger {
	l := &ledger{addr: harness.Addr(t)}
	l.up(t)
	t.Cleanup(l.down)
	return l
}

// up begins to listen.
func (l *ledger) up(t testing.TB) {
	t.Helper()
	var listener net.Listener
	harness.Eventually(t, 10*time.Second, "listening again", func() (err error) {
		listener, err = net.Listen("tcp", l.addr)
		return err
	})
	server := &http.Server{Handler: l}
	l.mu.Lock()
	l.server = server
	l.mu.Unlock()
	go server.Serve(listener)
}

// down ends the listener and every connection.
func (l *ledger) down() {
	l.mu.Lock()
	server := l.server
	l.mu.Unlock()
	server.Close()
}

// behave changes how deliveries are answered.
func (l *ledger) behave(answer func(arrival) int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer = answer
}

// hang lets nothing be answered until release is called.
func (l *ledger) hang() (release func()) {
	c := make(chan struct{})
	l.behave(func(arrival) int { <-c; return http.StatusOK })
	return sync.OnceFunc(func() { close(c) })
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // a broken upload is no delivery
	}
	var said push
	json.Unmarshal(body, &said)
	l.mu.Lock()
	l.inside++
	a := arrival{id: r.Header.Get("X-Github-Delivery"), repository: said.Repository.Name, n: said.N, sum: sha256.Sum256(body), inside: l.inside, done: l.done}
	l.arrivals = append(l.arrivals, a)
	answer := l.answer
	l.mu.Unlock()
	status := http.StatusOK
	if answer != nil {
		status = answer(a)
	}
	l.mu.Lock()
	l.inside--
	if status < 300 {
		l.done++
	}
	l.mu.Unlock()
	w.WriteHeader(status)
}

// all are the arrivals so far.
func (l *ledger) all() []arrival {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.arrivals)
}

// first are the arrivals of a repository without repetitions.
func first(all []arrival, repository string) (list []arrival) {
	seen := map[string]bool{}
	for _, a := range all {
		if a.repository == repository && !seen[a.id] {
			seen[a.id] = true
			list = append(list, a)
		}
	}
	return list
}

// push is the body of a delivery.
type push struct {
	N          int `json:"n"`
	Repository struct {
		Name string `json:"full_name"`
	} `json:"repository"`
}

// keptBody is the body of the nth delivery of a repository.
func keptBody(repository string, n int) string {
	return fmt.Sprintf(`{"n":%d,"ref":"refs/heads/main","repository":{"full_name":%q}}`, n, repository)
}

// keptID numbers deliveries as GitHub does.
func keptID(repository string, n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", repository, n))
	x := fmt.Sprintf("%x", sum[:15])
	return fmt.Sprintf("%s-%s-4%s-8%s-%s", x[:8], x[8:12], x[12:15], x[15:18], x[18:30])
}

// keeper is a gateway with one hook that keeps its deliveries for a ledger.
type keeper struct {
	*ingressSite
	dir    string // of the spool
	sender *http.Client
	sites  func(dir string, more string) string
}

const keptHook = "/hooks/ci"

// startKeeper starts a gateway with the given mode; deliver and spool are further lines of those blocks.
func startKeeper(t testing.TB, mode, receiver, deliver, spool string) *keeper {
	t.Helper()
	k := newKeeper(t, mode, receiver, deliver, spool)
	k.Gateway = harness.StartGateway(t, harness.Config{Sites: k.sites(k.dir, "")})
	return k
}

func newKeeper(t testing.TB, mode, receiver, deliver, spool string) *keeper {
	t.Helper()
	port, secret := harness.Port(t), secretFile(t, hookSecret)
	k := &keeper{ingressSite: &ingressSite{addr: fmt.Sprintf("127.0.0.1:%d", port)}, dir: filepath.Join(harness.TempDir(t), "spool")}
	k.sites = func(dir, more string) string {
		return fmt.Sprintf(`http://:%d {
admission {
webhooks {
 requests 1000000 100000/s
 bytes 1GiB 1GiB/s
 senders 127.0.0.1/32
}
webhook %s {
 profile github
 secret_file %s
 keep %s
 deliver http://%s%s {
  %s
 }
}
spool %s {
 %s
}
%s
}
respond "the site" 200
}`, port, keptHook, secret, mode, receiver, keptHook, deliver, dir, spool, more)
	}
	k.sender = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	return k
}

// send sends the nth delivery of a repository and returns the status, 0 when there was no answer.
func (k *keeper) send(repository string, n int) int {
	return k.sendAs(repository, n, keptID(repository, n), hookSecret)
}

func (k *keeper) sendAs(repository string, n int, id, secret string) int {
	body := keptBody(repository, n)
	r, err := http.NewRequest(http.MethodPost, "http://"+k.addr+keptHook, strings.NewReader(body))
	if err != nil {
		return 0
	}
	r.GetBody = nil // a delivery is sent once
	r.Header = http.Header{"Content-Type": {"application/json"}, "X-Github-Event": {"push"}, "X-Github-Delivery": {id},
		"X-Hub-Signature-256": {"sha256=" + sign256(secret, body)}}
	resp, err := k.sender.Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

// want sends and expects a status.
func (k *keeper) want(t testing.TB, repository string, n, status int) {
	t.Helper()
	if got := k.send(repository, n); got != status {
		t.Fatalf("delivery %d of %s: answered %d, want %d", n, repository, got, status)
	}
}

// waitEmpty waits until nothing is due any more.
func (k *keeper) waitEmpty(t testing.TB, limit time.Duration) {
	t.Helper()
	harness.Eventually(t, limit, "an empty spool", func() error {
		if s := k.spool(t); s.Depth > 0 {
			return fmt.Errorf("%d due", s.Depth)
		}
		return nil
	})
}

// spoolState is what the state says of a spool.
type spoolState struct {
	Dir         string            `json:"dir"`
	Moving      bool              `json:"moving"`
	Depth       int               `json:"depth"`
	Dead        int               `json:"dead"`
	Kept        int               `json:"kept"`
	Damaged     int               `json:"damaged"`
	DiskFailing bool              `json:"disk_failing"`
	Died        map[string]int    `json:"died"`
	Dropped     map[string]int    `json:"dropped"`
	Replayed    map[string]uint64 `json:"replayed"`
	Hooks       map[string]struct {
		Running int `json:"running"`
	} `json:"hooks"`
}

func (k *keeper) spool(t testing.TB) *spoolState {
	t.Helper()
	var s struct {
		Pools map[string]struct{ Spool *spoolState }
	}
	if err := json.Unmarshal([]byte(k.Admin("GET", "/admission/state", "", "")), &s); err != nil {
		t.Fatalf("state: %v", err)
	}
	p, ok := s.Pools["default"]
	if !ok || p.Spool == nil {
		t.Fatal("state: no spool")
	}
	return p.Spool
}
