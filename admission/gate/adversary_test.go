package gate

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
)

// lax is a server as Apache is with git-http-backend: whatever credential is
// accepted where reading is open; pushing and /priv need the secret TOKEN, or a
// genuine cookie. It counts what is inside at once, and holds made-up
// credentials until hold is closed.
type lax struct {
	now, peak, bare atomic.Int64
	hold            chan struct{}
}

func (l *lax) serve(w http.ResponseWriter, r *http.Request) error {
	n := l.now.Add(1)
	defer l.now.Add(-1)
	for p := l.peak.Load(); n > p && !l.peak.CompareAndSwap(p, n); p = l.peak.Load() {
	}
	if r.Header.Get("Authorization") == "" {
		l.bare.Add(1)
	}
	_, _ = io.Copy(io.Discard, r.Body)
	user, secret := sloppy(r.Header.Get("Authorization"))
	if l.hold != nil && strings.HasPrefix(secret, "random-") {
		<-l.hold
	}
	c, _ := r.Cookie("session")
	genuine := secret == "TOKEN" || user == "TOKEN" || c != nil && c.Value == "genuine"
	service := r.URL.Query().Get("service")
	if (service != "git-upload-pack" || strings.HasPrefix(r.URL.Path, "/priv")) && !genuine {
		w.Header().Set("WWW-Authenticate", "Basic")
		w.WriteHeader(http.StatusUnauthorized)
		return nil
	}
	w.Header().Set("Content-Type", "application/x-"+service+"-advertisement")
	_, _ = io.WriteString(w, pkt("# service="+service+"\n")+"0000"+pkt("version 2\n")+"0000")
	return nil
}

// sloppy reads a credential as the laxest servers do, of whatever scheme.
func sloppy(line string) (user, secret string) {
	scheme, text, _ := strings.Cut(line, " ")
	text, _, _ = strings.Cut(strings.TrimSpace(text), ",")
	if !strings.EqualFold(scheme, "basic") {
		return "", text
	}
	plain, _ := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	user, secret, _ = strings.Cut(string(plain), ":")
	return user, secret
}

// attack is a gate that is called without a network in between.
type attack struct {
	*Gate
	up *lax
}

func newAttack(t *testing.T, cfg admission.Config, opts Options) *attack {
	t.Helper()
	policy, problems := cfg.Compile()
	if policy == nil {
		t.Fatal(problems)
	}
	g, err := New(NewState(policy), opts)
	if err != nil {
		t.Fatal(err)
	}
	return &attack{g, new(lax)}
}

func (a *attack) do(method, target, from, authorization string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr(from), 4000).String()
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	_ = a.Serve(w, r, a.up.serve)
	return w
}

func (a *attack) admitted(c admission.Class) uint64 {
	d := a.state.Controller.Snapshot().Decisions[c]
	return d[admission.DecisionAdmitted] + d[admission.DecisionWaited]
}

func basic(user, secret string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+secret))
}

// 30,000 made-up credentials, as fast as they go, from 4,000 addresses: none is
// proven, no reserved place is taken, the upstream never serves more of them at
// once than candidate has places, it is asked one question, and a genuine
// newcomer is proven meanwhile.
func TestThirtyThousandRandomCredentials(t *testing.T) { synctest.Test(t, thirtyThousand) }

func thirtyThousand(t *testing.T) {
	a := newAttack(t, admission.Config{}, Options{})
	a.up.hold = make(chan struct{})
	var wg sync.WaitGroup
	var sent atomic.Int64
	for range 64 {
		wg.Go(func() {
			for n := sent.Add(1); n <= 30_000; n = sent.Add(1) {
				from := fmt.Sprintf("198.%d.%d.%d", 18+n%2, n%200, n%10+1)
				a.do(http.MethodGet, readRefs, from, basic("u", fmt.Sprintf("random-%d", n)))
			}
		})
	}
	places := int64(a.state.Controller.Policy().Classes[admission.Candidate].Max)
	synctest.Wait() // 64 are as far as they get
	if n := a.up.now.Load(); n != places {
		t.Errorf("%d of 64 are at the upstream, want %d", n, places)
	}
	close(a.up.hold)
	for sent.Load() < 10_000 {
		a.do(http.MethodGet, pushRefs, "203.0.113.5", basic("dev", "TOKEN"))
	}
	if n := a.admitted(admission.Push); n == 0 {
		t.Error("a genuine newcomer was not proven while the flood ran")
	}
	wg.Wait()
	if n := a.admitted(admission.Read); n != 0 {
		t.Errorf("%d made-up credentials were taken for proven", n)
	}
	if p := a.state.Identity.Snapshot().Proofs.Held; p != 1 {
		t.Errorf("%d proofs, want the newcomer's", p)
	}
	if a.up.peak.Load() > places+1 {
		t.Errorf("the upstream served %d at once, want %d and the newcomer", a.up.peak.Load(), places)
	}
	if n := a.up.bare.Load(); n > 2 { // one for each service
		t.Errorf("%d questions", n)
	}
}

// One genuine token in 1,000 costumes is one identity with one cap.
func TestOneTokenInManyCostumes(t *testing.T) {
	a := newAttack(t, admission.Config{WaitOff: true}, Options{})
	costumes := []string{"Bearer TOKEN", "bearer TOKEN", "token TOKEN", basic("TOKEN", ""), basic("TOKEN", "x-oauth-basic")}
	for i := len(costumes); i < 1000; i++ {
		costumes = append(costumes, basic(fmt.Sprintf("user-%d", i), "TOKEN"))
	}
	for _, c := range costumes {
		a.do(http.MethodGet, pushRefs, "203.0.113.5", c)
	}
	if n := a.state.Identity.Snapshot().Secrets.Held; n != 1 {
		t.Errorf("%d identities of one token", n)
	}
	// All costumes together hold what one credential may, from however many addresses of the network.
	var held []admission.Permit
	for i, c := range costumes {
		r := httptest.NewRequest(http.MethodPost, "/pub.git/git-receive-pack", nil)
		r.RemoteAddr = fmt.Sprintf("203.0.113.%d:1", i%250+1)
		r.Header.Set("Authorization", c)
		s := a.subject(r, classify.Result{Kind: classify.PushRPC, Repository: "pub"})
		p, ref := a.state.Controller.TryAdmit(a.request(r, s))
		if ref == nil {
			held = append(held, p)
		}
	}
	if limit := a.state.Controller.Policy().Classes[admission.Push].CallerMax[admission.ByCredential]; len(held) != limit {
		t.Errorf("%d pushes held, want %d", len(held), limit)
	}
	for _, p := range held {
		p.End(admission.OutcomeCompleted)
	}
	// A costume that servers read in different ways is nobody's, even where the
	// server takes it.
	odd := []string{"Basic  dTpUT0tFTg==", "Basic dTpUT0tFTg", "Basic dTpUT0tFTg==, x", "Basic dTpUT0tFTh==", "Bearer  TOKEN", "Foo TOKEN"}
	for i, c := range append(odd, basic("u", "TOKEN")) {
		before, canonical := a.admitted(admission.Push), i == len(odd)
		if w := a.do(http.MethodGet, pushRefs, "203.0.113.5", c); w.Code != http.StatusOK {
			t.Errorf("the server does not take %q", c)
		}
		if proven := a.admitted(admission.Push) != before; proven != canonical {
			t.Errorf("%q proven: %v", c, proven)
		}
	}
}

// A genuine second credential beside a made-up one proves nothing.
func TestGenuineSecondCredentialProvesNothing(t *testing.T) {
	for name, second := range map[string][2]string{
		"cookie":       {"Cookie", "session=genuine"},
		"login header": {"X-Login-User", "alice"},
	} {
		a := newAttack(t, admission.Config{}, Options{})
		next := func(w http.ResponseWriter, r *http.Request) error {
			if r.Header.Get("X-Login-User") != "" {
				r.Header.Set("Cookie", "session=genuine")
			}
			return a.up.serve(w, r)
		}
		a.do(http.MethodGet, pushRefs, "192.0.2.1", "") // what strangers get is known
		for i := range 20 {
			r := httptest.NewRequest(http.MethodGet, pushRefs, nil)
			r.Header.Set("Authorization", basic("u", fmt.Sprintf("random-%d", i)))
			r.Header.Set(second[0], second[1])
			w := httptest.NewRecorder()
			if _ = a.Serve(w, r, next); w.Code != http.StatusOK {
				t.Fatalf("%s: the upstream answered %d, so nothing was tried", name, w.Code)
			}
		}
		if p := a.state.Identity.Snapshot().Proofs.Held; p != 0 {
			t.Errorf("%s: %d proofs", name, p)
		}
	}
	// Two Authorization lines, one of them genuine.
	a := newAttack(t, admission.Config{}, Options{})
	a.do(http.MethodGet, pushRefs, "203.0.113.5", basic("u", "TOKEN"), "Authorization", basic("u", "made-up"))
	if p := a.state.Identity.Snapshot().Proofs.Held; p != 0 {
		t.Errorf("two lines: %d proofs", p)
	}
}

// Every spelling of facts that servers read in different ways, with a genuine
// credential: it may be refused or served, but only the one canonical spelling
// of each service proves.
func TestPathTricksProveNothing(t *testing.T) {
	f, err := os.Open("../classify/testdata/targets.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tried := 0
	for in := bufio.NewScanner(f); in.Scan(); {
		c := strings.Split(in.Text(), "\t")
		if strings.HasPrefix(in.Text(), "#") || len(c) != 13 {
			continue
		}
		method, target := c[1], strings.Replace(c[2], "HOST", "example.com", 1)
		u, err := url.ParseRequestURI(target)
		if err != nil {
			continue // net/http refuses it before any handler
		}
		a := newAttack(t, admission.Config{}, Options{})
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Method, r.URL, r.RequestURI, r.Host = method, u, target, "example.com"
		if u.Host != "" {
			r.Host = u.Host
		}
		r.Header.Set("Authorization", basic("dev", "TOKEN"))
		if strings.HasPrefix(c[3], "rp") {
			r.Header.Set("Content-Type", "application/x-git-receive-pack-request")
		} else if strings.HasPrefix(c[3], "up") {
			r.Header.Set("Content-Type", "application/x-git-upload-pack-request")
		}
		switch name, value, _ := strings.Cut(c[4], ": "); {
		case value != "" && name != "Transfer-Encoding":
			r.Header.Set(name, value)
		case strings.HasPrefix(c[4], "ver="):
			r.Proto, r.ProtoMinor = "HTTP/1.0", 0
		case c[4] == "chunk=1", name == "Transfer-Encoding":
			r.TransferEncoding, r.ContentLength, r.Body = []string{"chunked"}, -1, io.NopCloser(strings.NewReader("x"))
		}
		// The most trusting upstream there is.
		_ = a.Serve(httptest.NewRecorder(), r, func(w http.ResponseWriter, r *http.Request) error {
			if r.Header.Get("Authorization") == "" {
				w.WriteHeader(http.StatusUnauthorized)
				return nil
			}
			service := "git-receive-pack"
			if strings.Contains(r.URL.RawQuery, "upload-pack") {
				service = "git-upload-pack"
			}
			w.Header().Set("Content-Type", "application/x-"+service+"-advertisement")
			_, _ = io.WriteString(w, pkt("# service="+service+"\n")+"0000")
			return nil
		})
		tried++
		if n := a.admitted(admission.Push) + a.admitted(admission.Read); n != 0 {
			t.Errorf("line %s, %s %s: a reserved place", c[0], method, target)
		}
		path, query, _ := strings.Cut(target, "?")
		canonical := method == http.MethodGet && strings.HasPrefix(target, "/") && strings.HasSuffix(path, "/info/refs") &&
			(query == "service=git-upload-pack" || query == "service=git-receive-pack") &&
			!strings.ContainsAny(path, "%\\") && !strings.Contains(path, "//") && !strings.Contains(path, "/.")
		if held := a.state.Identity.Snapshot().Proofs.Held; held != 0 && !canonical {
			t.Errorf("line %s, %s %s proved a credential", c[0], method, target)
		}
	}
	if tried < 90 {
		t.Errorf("%d spellings tried", tried)
	}
}

// A million addresses inside one /48 are 65,536 callers of one group. The table
// stays within its bound although none of them may be forgotten, and an honest
// newcomer gets its place at once beside the full table.
func TestKeyChurnInsideOneNetwork(t *testing.T) {
	const bound = 2_000
	budget := &admission.ClassConfig{CallerBucket: &admission.BucketConfig{Burst: 8, PerSecond: 0.001}}
	a := newAttack(t, admission.Config{CallersMax: bound, WaitOff: true, Classes: map[string]*admission.ClassConfig{"anonymous": budget}}, Options{})
	c := a.state.Controller
	groups, callers := map[admission.Key]bool{}, map[admission.Key]bool{}
	k := a.state.Keyer
	q := &admission.Request{Class: admission.Anonymous}
	admitted := 0
	for i := range 1_000_000 {
		ip := netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, 1, byte(i >> 8), byte(i), byte(i >> 16), 15: byte(i)})
		q.Group, q.Keys[admission.ByAddress] = k.Group(ip), k.AddrBits(ip, a.opts.IPv4Bits, a.opts.IPv6Bits)
		groups[q.Group], callers[q.Keys[admission.ByAddress]] = true, true
		if p, ref := c.TryAdmit(q); ref == nil {
			admitted++
			p.End(admission.OutcomeCompleted)
		}
	}
	if len(groups) != 1 || len(callers) != 1<<16 {
		t.Errorf("%d groups and %d callers, want 1 and 65,536", len(groups), len(callers))
	}
	if got := c.Snapshot().Callers.Tracked; got != bound {
		t.Errorf("%d callers tracked, bound %d", got, bound)
	}
	// Whom the table has no room for shares the budget of one.
	if most := 8*bound + 8 + 16; admitted > most {
		t.Errorf("%d admitted, want at most %d", admitted, most)
	}
	if w := a.do(http.MethodGet, pushRefs, "203.0.113.5", basic("dev", "TOKEN")); w.Code != http.StatusOK {
		t.Errorf("an honest newcomer got %d", w.Code)
	}
	if w := a.do(http.MethodGet, pushRefs, "203.0.113.5", basic("dev", "TOKEN")); w.Code != http.StatusOK || a.admitted(admission.Push) != 1 {
		t.Errorf("proven, it got %d", w.Code)
	}
}

// 10,000 strangers with cookies of their own beside git's sign-ins: pages cost
// the upstream no more at once than web and candidate have places.
func TestCrawlersWithCookies(t *testing.T) { synctest.Test(t, crawlersWithCookies) }

func crawlersWithCookies(t *testing.T) {
	f := newFakeForge()
	a := newAttack(t, admission.Config{}, Options{Profile: classify.Gitea})
	var inside, peak atomic.Int64
	hold := make(chan struct{})
	next := func(w http.ResponseWriter, r *http.Request) error {
		n := inside.Add(1)
		defer inside.Add(-1)
		for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
		}
		if r.Header.Get("Cookie") != "" {
			<-hold
		}
		switch r.URL.Path {
		case "/user/settings":
			http.Redirect(w, r, "/user/login", http.StatusSeeOther)
		default:
			f.html(w)
		}
		return nil
	}
	var wg sync.WaitGroup
	var sent atomic.Int64
	for range 64 {
		wg.Go(func() {
			for n := sent.Add(1); n <= 10_000; n = sent.Add(1) {
				r := httptest.NewRequest(http.MethodGet, dearPage, nil)
				r.RemoteAddr = fmt.Sprintf("198.%d.%d.%d:1", 18+n%2, n/250%250, n%250+1)
				r.Header.Set("Cookie", fmt.Sprintf("i_like_gitea=crawler-%d", n))
				_ = a.Serve(httptest.NewRecorder(), r, next)
			}
		})
	}
	p := a.state.Controller.Policy()
	places := int64(p.Classes[admission.Web].Max + p.Classes[admission.Candidate].Max)
	synctest.Wait() // 64 are as far as they get
	if n := inside.Load(); n != places {
		t.Errorf("%d of 64 are at the forge, want %d", n, places)
	}
	close(hold)
	wg.Wait()
	if peak.Load() > places {
		t.Errorf("the forge served %d at once, want at most %d", peak.Load(), places)
	}
	if v := a.state.Verified(); v.Genuine != 0 || v.Known > strangersMax {
		t.Errorf("%+v", v)
	}
}
