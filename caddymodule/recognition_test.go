package caddymodule

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/identity"
)

// The tests keep their data out of the user's own Caddy directory.
func init() {
	dir, err := os.MkdirTemp("", "admission-data")
	if err != nil {
		panic(err)
	}
	_ = os.Setenv("XDG_DATA_HOME", dir)
}

// forge answers pages to everybody, and knows alice by her session.
func forge(w http.ResponseWriter, r *http.Request) {
	c, err := r.Cookie("i_like_gitea")
	known := err == nil && c.Value == "alices"
	w.Header().Set("Content-Type", "text/html")
	switch {
	case r.URL.Path == "/user/settings" && !known:
		http.Redirect(w, r, "/user/login", http.StatusSeeOther)
	case r.URL.Path == "/user/settings" && len(r.Cookies()) != 1:
		http.Error(w, "more than the one credential", http.StatusInternalServerError)
	default:
		_, _ = fmt.Fprintf(w, "%s %s", r.URL.Path, r.Header.Get("X-Webauth-User"))
	}
}

const dear = "/o/r/blame/branch/main/x.go"

// A forge's preset works through Caddy: strangers share web, people do not,
// identity headers of clients go, those of handlers behind stay.
func TestForgeThroughCaddy(t *testing.T) {
	s := start(t, `admission forge-web {
		forge gitea
		class web {
			max 0
		}
	}
	request_header X-Set-Behind yes
	test_upstream`, forge)
	for name, c := range map[string]struct {
		a    ask
		want int
	}{
		"stranger":       {ask{path: dear, from: "203.0.113.1"}, http.StatusServiceUnavailable},
		"made-up cookie": {ask{path: dear, from: "203.0.113.1", header: http.Header{"Cookie": {"i_like_gitea=x"}}}, http.StatusServiceUnavailable},
		"alice":          {ask{path: dear, from: "203.0.113.2", header: http.Header{"Cookie": {"lang=de; i_like_gitea=alices; remember=1"}}}, http.StatusOK},
		"cheap page":     {ask{path: "/o/r", from: "203.0.113.1", header: http.Header{"X-Webauth-User": {"root"}}}, http.StatusOK},
	} {
		resp, body := s.do(c.a)
		if resp.StatusCode != c.want || strings.Contains(body, "root") {
			t.Errorf("%s: %d %q, want %d", name, resp.StatusCode, body, c.want)
		}
	}
	// Both cookies were asked about, and both places to look say so.
	if v := pool(t, "forge-web").Verify; v.Genuine != 1 || v.Stranger != 1 || v.Known != 1 {
		t.Errorf("state: %+v", v)
	}
	for answer, want := range map[string]float64{"genuine": 1, "stranger": 1, "unknown": 0, "no_place": 0} {
		if n := value(gather(t), "verify_total", map[string]string{"pool": "forge-web", "answer": answer}); n != want {
			t.Errorf("verify_total %s: %v, want %v", answer, n, want)
		}
	}
}

// Named matchers, paths and exemptions through a Caddyfile; a class that only
// a proof opens cannot be given away.
func TestRulesThroughCaddy(t *testing.T) {
	s := start(t, `@bots header User-Agent *Bot*
	admission rules {
		exempt /ping.git/*
		classify web @bots
		class web {
			max 0
		}
		class anonymous {
			max 0
		}
		class discovery {
			max 16
		}
		allow_starvation
	}
	test_upstream`, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	bot := http.Header{"User-Agent": {"A Bot"}}
	for name, c := range map[string]struct {
		a    ask
		want int
	}{
		"page":             {ask{path: "/x"}, http.StatusOK},
		"bot's page":       {ask{path: "/x", header: bot}, http.StatusServiceUnavailable},
		"bot's git":        {ask{path: pushRefs, header: bot}, http.StatusServiceUnavailable},
		"fetch":            {ask{method: "POST", path: readRPC, body: "0000"}, http.StatusServiceUnavailable},
		"exempt fetch":     {ask{method: "POST", path: "/ping.git/git-upload-pack", body: "0000"}, http.StatusOK},
		"exempt by detour": {ask{method: "POST", path: "/ping.git/../pub.git/git-upload-pack", body: "0000"}, http.StatusBadRequest},
	} {
		if resp, body := s.do(c.a); resp.StatusCode != c.want {
			t.Errorf("%s: %d %q, want %d", name, resp.StatusCode, body, c.want)
		}
	}
	for _, class := range []string{"push", "read", "candidate", "discovery", "webhook", "logout"} {
		raw := `{"handler":"admission","name":"stolen","pool":{"rules":[{"class":"` + class + `","match":{"path":["/x"]}}]}}`
		err := caddy.Validate(mustConfig(t, s, raw))
		if err == nil || !strings.Contains(err.Error(), class) {
			t.Errorf("a rule gives class %s away: %v", class, err)
		}
		// In a Caddyfile the error names the line.
		_, err = adapt(s.caddyfile("admission stolen {\n classify " + class + " /x\n}\n test_upstream"))
		if err == nil || !strings.Contains(err.Error(), "Caddyfile:16: classify "+class) {
			t.Errorf("class %s: %v", class, err)
		}
	}
}

// mustConfig is a configuration with one more handler in front.
func mustConfig(t *testing.T, s *server, handler string) *caddy.Config {
	t.Helper()
	raw := s.json("respond ok", nil)
	text := strings.Replace(string(raw), `"handle":[`, `"handle":[`+handler+`,`, 1)
	cfg := new(caddy.Config)
	if err := caddy.StrictUnmarshalJSON([]byte(text), cfg); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// A user whom a handler in front has authenticated is proven at once.
func TestUserOfAHandlerInFront(t *testing.T) {
	g := newGitServer()
	// The hash is bcrypt of "pw" with the lowest cost.
	s := start(t, `route {
		basic_auth {
			dev $2a$04$rgZWY11nXGy.Tr7yYVMCIOUlD/JB24VTF.ssB5MoqDe9z06glmWLK
		}
		admission in-front
		test_upstream
	}`, g.serve)
	if resp, _ := s.do(ask{path: pushRefs, from: "203.0.113.9", user: "dev", pass: "pw"}); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	if n := pool(t, "in-front").Classes["push"].Decisions["admitted"]; n != 1 {
		t.Errorf("%d pushes admitted as proven, want 1", n)
	}
}

// Trusted networks need addresses that clients cannot choose.
func TestTrustedNetworksNeedStrictProxies(t *testing.T) {
	g := newGitServer()
	s := start(t, "admission office {\n trusted_networks 203.0.113.0/24\n}\n test_upstream", g.serve)
	for from, want := range map[string]string{"203.0.113.9": "push", "198.51.100.9": "discovery"} {
		before := pool(t, "office").Classes[want].Decisions["admitted"]
		s.do(ask{path: pushRefs, from: from})
		if n := pool(t, "office").Classes[want].Decisions["admitted"]; n != before+1 {
			t.Errorf("a bare push from %s is not %s", from, want)
		}
	}
	loose := strings.Replace(s.caddyfile("admission office {\n trusted_networks 203.0.113.0/24\n}\n test_upstream"), "trusted_proxies_strict\n", "", 1)
	raw, err := adapt(loose)
	if err != nil {
		t.Fatal(err)
	}
	if err := caddy.Load(raw, true); err == nil || !strings.Contains(err.Error(), "trusted_proxies_strict") {
		t.Errorf("clients may choose a trusted address: %v", err)
	}
}

// An address in a shared network has its own cap in the compiled policy.
func TestSharedNetworksInThePolicy(t *testing.T) {
	p := &Pool{Recognition: Recognition{SharedNetworks: []string{"203.0.113.7/32"}, SharedMax: 20}}
	def, problems := p.compile()
	if def == nil {
		t.Fatal(problems)
	}
	for class, want := range map[admission.Class]int{admission.Anonymous: 20, admission.Push: 20, admission.Other: 0} {
		if n := def.policy.Classes[class].CallerMax[admission.ByCustom3]; n != want {
			t.Errorf("%s: %d, want %d", class, n, want)
		}
	}
	p.Classes = map[string]*admission.ClassConfig{"push": {CustomMax: make([]admission.CustomMax, 4)}}
	if def, _ := p.compile(); def != nil {
		t.Error("four placeholders and shared networks compile")
	}
}

// Networks that carried a proof outlive the process: in a file that only the
// owner reads, without a credential, written when the configuration stops.
func TestRememberedNetworksAreKept(t *testing.T) {
	g := newGitServer()
	s := start(t, "admission kept {\n total 8\n}\n test_upstream", g.serve)
	s.signIn("203.0.113.5")
	if err := caddy.Stop(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(caddy.AppDataDir(), "admission", "kept.groups")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info, err)
	}
	if b, _ := os.ReadFile(path); strings.Contains(string(b), "pw") || strings.Contains(string(b), "dev") {
		t.Error("the file holds a credential")
	}
	after := identity.NewStore()
	k := newGroupKeeper(zap.NewNop())
	k.add("kept", after)
	group := func(a string) bool {
		return after.GroupRemembered(identity.GroupPrefix(parseAddr(a)), time.Now())
	}
	if !group("203.0.113.77") || group("198.51.100.1") {
		t.Error("the next process does not know the network, or knows another")
	}
	// A damaged file costs the turn only.
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	newGroupKeeper(zap.NewNop()).add("kept", identity.NewStore())
}
