package gate

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
)

func addrOf(s string) netip.Addr { return netip.MustParseAddr(s) }

func networks(s ...string) (out []netip.Prefix) {
	for _, n := range s {
		out = append(out, netip.MustParsePrefix(n))
	}
	return out
}

// vouchedClass is the class that a bare push discovery gets.
func vouchedClass(t *testing.T, opts Options, change func(*http.Request)) admission.Class {
	t.Helper()
	policy, _ := admission.Config{}.Compile()
	g, err := New(NewState(policy), opts)
	if err != nil {
		t.Fatal(err)
	}
	r, _ := http.NewRequest(http.MethodGet, "http://git.example.com/o/r.git/info/refs?service=git-receive-pack", nil)
	r.RemoteAddr = "192.0.2.1:1000"
	if change != nil {
		change(r)
	}
	f := classifyFacts(r)
	s := g.subject(r, classify.Classify(classify.Generic, &f))
	return s.class
}

func TestWhoVouches(t *testing.T) {
	cert := &x509.Certificate{Raw: []byte("cert")}
	verified := func(r *http.Request) {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}, VerifiedChains: [][]*x509.Certificate{{cert}}}
	}
	user := func(name string) func(*http.Request) string { return func(*http.Request) string { return name } }
	proxy := func(*http.Request) (netip.Addr, bool) { return addrOf("192.0.2.1"), false }
	for name, c := range map[string]struct {
		opts   Options
		change func(*http.Request)
		want   admission.Class
	}{
		"nobody":                                {Options{}, nil, admission.Discovery},
		"a user of a handler in front":          {Options{People: People{User: user("bob")}}, nil, admission.Push},
		"a handler that knows nobody":           {Options{People: People{User: user("")}}, nil, admission.Discovery},
		"a verified certificate":                {Options{People: People{Certificates: true}}, verified, admission.Push},
		"a certificate nobody asked to trust":   {Options{}, verified, admission.Discovery},
		"a certificate that was not verified":   {Options{People: People{Certificates: true}}, func(r *http.Request) { verified(r); r.TLS.VerifiedChains = nil }, admission.Discovery},
		"a trusted network":                     {Options{People: People{Trusted: networks("192.0.2.0/24")}}, nil, admission.Push},
		"another network":                       {Options{People: People{Trusted: networks("198.51.100.0/24")}}, nil, admission.Discovery},
		"a proxy's address, which is no caller": {Options{ClientIP: proxy, People: People{Trusted: networks("192.0.2.0/24")}}, nil, admission.Discovery},
	} {
		if got := vouchedClass(t, c.opts, c.change); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// One user with many tokens is one user where the forge names him.
func TestCapsCountPerUserWhereKnown(t *testing.T) {
	f := newFakeForge()
	s := serveForge(t, admission.Config{}, Options{}, f)
	keyOf := func(auth string) admission.Key {
		s.get(t, dearPage, "192.0.2.5", map[string]string{"Authorization": auth})
		r, _ := http.NewRequest(http.MethodGet, s.URL+dearPage, nil)
		r.Header.Set("Authorization", auth)
		r.Header.Set("X-Test-Addr", "192.0.2.5")
		q := s.gate.request(r, s.gate.subject(r, classify.Result{}))
		if !q.Proven {
			t.Fatalf("%s is not proven", auth)
		}
		return q.Keys[admission.ByCredential]
	}
	pw, pw2, bob := keyOf("Basic YWxpY2U6cHc="), keyOf("token pw2"), keyOf("token bobs")
	if pw != pw2 || pw == bob {
		t.Errorf("keys %x %x %x: want two of one user and one of another", pw, pw2, bob)
	}
}

// An address in a shared network has a cap of its own; every other keeps its.
func TestSharedNetworkHasItsOwnCap(t *testing.T) {
	cfg := admission.Config{WaitOff: true}
	policy, _ := cfg.Compile()
	policy.Classes[admission.Anonymous].CallerMax[admission.ByCustom3] = 12
	g, err := New(NewState(policy), Options{People: People{Shared: networks("203.0.113.0/24")}})
	if err != nil {
		t.Fatal(err)
	}
	fill := func(addr string) (n int) {
		r, _ := http.NewRequest(http.MethodPost, "http://x/o/r.git/git-upload-pack", nil)
		r.RemoteAddr = addr + ":1"
		for {
			s := g.subject(r, classify.Result{Kind: classify.ReadRPC, Repository: "o/r"})
			p, ref := g.state.Controller.TryAdmit(g.request(r, s))
			if ref != nil {
				if ref.Shared {
					t.Fatalf("%s met a shared limit: %s", addr, ref.Reason)
				}
				return n
			}
			defer p.End(admission.OutcomeCompleted)
			n++
		}
	}
	if n := fill("203.0.113.7"); n != 12 {
		t.Errorf("the office got %d, want 12", n)
	}
	if n := fill("198.51.100.7"); n != 4 {
		t.Errorf("a single caller got %d, want 4", n)
	}
}

// A caller key that is empty, oversized or malformed has one declared meaning,
// and none of them makes a fresh budget.
func TestOddCallerKeys(t *testing.T) {
	g := &Gate{state: &State{Keyer: admission.NewKeyer()}}
	if g.customKey("") != 0 {
		t.Error("an empty value is capped")
	}
	for _, pair := range [][2]string{
		{strings.Repeat("a", keyMax+1), strings.Repeat("b", 5000)},
		{"a\x00", "b\n"},
	} {
		if g.customKey(pair[0]) != g.customKey(pair[1]) {
			t.Errorf("%.9q and %.9q are two callers", pair[0], pair[1])
		}
	}
	if g.customKey("a") == g.customKey("b") || g.customKey(strings.Repeat("a", keyMax)) == g.customKey(strings.Repeat("a", keyMax+1)) {
		t.Error("ordinary values are one caller")
	}
	// A missing address is one caller, not none.
	none := func(*http.Request) (netip.Addr, bool) { return netip.Addr{}, true }
	policy, _ := admission.Config{}.Compile()
	gate, _ := New(NewState(policy), Options{ClientIP: none})
	r, _ := http.NewRequest(http.MethodGet, "http://x/", nil)
	if gate.subject(r, classify.Result{}).caller == 0 {
		t.Error("a request without an address has no caller, so no cap")
	}
}

// Networks that carried a proof wait first; the list is what a restart keeps.
func TestRememberedNetworksGoFirst(t *testing.T) {
	f := newFakeForge()
	s := serveForge(t, admission.Config{}, Options{}, f)
	s.get(t, dearPage, "192.0.2.5", map[string]string{"Authorization": "token pw"})
	kept := s.state.Identity.ExportGroups(clock())

	policy, _ := admission.Config{}.Compile()
	after := NewState(policy) // the process that comes next
	if err := after.Identity.ImportGroups(kept, clock()); err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]bool{"192.0.2.77": true, "198.51.100.1": false} {
		for _, class := range []admission.Class{admission.Candidate, admission.Discovery} {
			if got := goesFirst(t, after, class, addr); got != want {
				t.Errorf("%s goes first in %s: %v, want %v", addr, class, got, want)
			}
		}
	}
	// The bucket of a class is not passed by.
	policy, _ = admission.Config{Classes: map[string]*admission.ClassConfig{"candidate": {CallerBucket: &admission.BucketConfig{Burst: 1, PerSecond: 1}}}}.Compile()
	after.Controller.Apply(policy)
	if goesFirst(t, after, admission.Candidate, "192.0.2.77") {
		t.Error("a remembered network passes a bucket by")
	}
	if !goesFirst(t, after, admission.Discovery, "192.0.2.77") {
		t.Error("a bucket of candidate takes the turn in discovery")
	}
	if strings.Contains(fmt.Sprintf("%q", kept), "pw") {
		t.Error("the list holds a credential")
	}
}

// goesFirst asks to push from addr, with a credential nobody knows or, for
// class discovery, without one.
func goesFirst(t *testing.T, state *State, class admission.Class, addr string) bool {
	t.Helper()
	g, err := New(state, Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, _ := http.NewRequest(http.MethodGet, "http://x/o/r.git/info/refs?service=git-receive-pack", nil)
	if class == admission.Candidate {
		r.SetBasicAuth("u", "unproven")
	}
	r.RemoteAddr = addr + ":1"
	f := classifyFacts(r)
	s := g.subject(r, classify.Classify(classify.Generic, &f))
	if s.class != class {
		t.Fatalf("class %s", s.class)
	}
	return g.request(r, s).Continuation
}
