package gate

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

func classes(name string, c admission.ClassConfig) admission.Config {
	return admission.Config{Classes: map[string]*admission.ClassConfig{name: &c}}
}

// A caller's own budget stops that caller first, and what it refuses spends
// nothing of the budget that all share.
func TestLoginHasABudgetPerCaller(t *testing.T) {
	own := &admission.BucketConfig{Burst: 4, PerSecond: 0.1}
	for name, target := range map[string]string{"login_start": startPath, "login_callback": callbackPath + "?code=x&state=unknown"} {
		cfg := classes(name, admission.ClassConfig{CallerBucket: own, Wait: &admission.WaitConfig{}, Bucket: &admission.BucketConfig{Burst: 6, PerSecond: 0.001}})
		loginBubble(t, cfg, &loginSite{}, func(t *testing.T, s *ingressServer) {
			class, _ := admission.ParseClass(name)
			passed := map[string]int{}
			for i := range 22 {
				addr := "192.0.2.1"
				if i >= 20 {
					addr = "198.51.100.1"
				}
				if code, _ := s.send(get(target, addr)); code < 400 {
					passed[addr]++
				}
			}
			if passed["192.0.2.1"] != 4 || passed["198.51.100.1"] != 2 {
				t.Errorf("%s: %v passed, want 4 of the busy caller and both of the other", name, passed)
			}
			d := s.state.Controller.Snapshot().Decisions[class]
			if n := d[admission.DecisionRefused(admission.ReasonCallerBucket)]; n != 16 {
				t.Errorf("%s: %d refused for the caller's bucket, want 16", name, n)
			}
		})
	}
}

// Who waits for its own token holds nobody else up.
func TestAShortCallerHoldsNobodyUp(t *testing.T) {
	cfg := classes("login_start", admission.ClassConfig{CallerBucket: &admission.BucketConfig{Burst: 1, PerSecond: 0.5}})
	loginBubble(t, cfg, &loginSite{}, func(t *testing.T, s *ingressServer) {
		s.send(get(startPath, "192.0.2.1"))
		start := time.Now()
		second := s.open(get(startPath, "192.0.2.1"))
		synctest.Wait()
		if code, _ := s.send(get(startPath, "198.51.100.1")); code != http.StatusFound || time.Since(start) != 0 {
			t.Errorf("another caller: %d after %v, want a redirect at once", code, time.Since(start))
		}
		r, _ := answerOf(t, second)
		_ = second.Close()
		if r.StatusCode != http.StatusFound || time.Since(start) != 2*time.Second {
			t.Errorf("the short caller: %d after %v, want a redirect with its next token after 2 s", r.StatusCode, time.Since(start))
		}
		third := s.open(get(startPath, "192.0.2.1")) // 2 s
		fourth := s.open(get(startPath, "192.0.2.1"))
		synctest.Wait()
		if code, _ := s.send(get(startPath, "192.0.2.1")); code != http.StatusServiceUnavailable {
			t.Errorf("the third that waits would wait 6 s of at most 5: %d, want 503 at once", code)
		}
		for _, c := range []interface{ Close() error }{third, fourth} {
			_ = c.Close()
		}
	})
}

// A known sender that its own limits stop anyway takes nobody's permit.
func TestKnownSenderBeyondItsOwnBudgetDisplacesNobody(t *testing.T) {
	cfg := classes("webhook", admission.ClassConfig{CallerBucket: &admission.BucketConfig{Burst: 1, PerSecond: 0.001}})
	in := func() IngressConfig { return IngressConfig{Hooks: []HookConfig{githubHook(t, "/hooks/ci")}} }
	u := &hookReceiver{}
	ingressBubble(t, cfg, in, u.next, func(t *testing.T, s *ingressServer) {
		known := delivery{body: "{}", addr: "203.0.113.1"}
		if code, _ := s.send(known.bytes()); code != http.StatusOK {
			t.Fatal(code)
		}
		for i := range 4 { // strangers whose bodies do not come
			go s.fire(delivery{body: "{}", declared: 1000, addr: fmt.Sprintf("198.51.%d.1", i)}.head())
		}
		synctest.Wait()
		if code, _ := s.send(known.bytes()); code != http.StatusServiceUnavailable {
			t.Errorf("beyond its own budget: %d", code)
		}
		if n := inUse(s.state, admission.Webhook); n != 4 {
			t.Errorf("%d strangers hold a permit, want 4: the test is about a full pool", n)
		}
		synctest.Wait()
		if n := outcome(s.state, HookDisplaced); n != 0 {
			t.Errorf("%d strangers lost their permit for nothing", n)
		}
	})
}

// A provider that signs everybody out sends all its logouts from one address:
// it may use the whole queue, whatever its own cap.
func TestOneProviderMayFillTheQueueOfLogouts(t *testing.T) {
	cfg := classes("logout", admission.ClassConfig{Max: ptr(2), CallerMax: ptr(2), Wait: &admission.WaitConfig{Size: 64, Max: admission.Duration(4 * time.Second)},
		Deadline: ptr(admission.Duration(30 * time.Second))})
	p, u := newProvider(t), &hookReceiver{}
	logoutBubble(t, p, cfg, u, func(t *testing.T, s *ingressServer) {
		u.hold = make(chan struct{})
		codes := make(chan int, 40)
		for range 40 {
			raw := logoutPost("192.0.2.1", p.token(false, "k1"))
			go func() { code, _ := s.send(raw); codes <- code }()
		}
		synctest.Wait()
		close(u.hold)
		for range 40 {
			if code := <-codes; code != http.StatusOK {
				t.Errorf("a genuine logout was answered %d", code)
			}
		}
	})
}

// In dry run the budgets of sign-ins and hooks decide and count, and refuse
// nothing.
func TestDryRunOfIngressCounts(t *testing.T) {
	tight := &admission.BucketConfig{Burst: 1, PerSecond: 0.001}
	for name, own := range map[string]bool{"login_start": true, "login_callback": true, "webhook": true, "logout": true} {
		class, _ := admission.ParseClass(name)
		c := admission.ClassConfig{DryRun: true, Bucket: tight}
		if own && class != admission.Logout {
			c.CallerBucket = tight
		}
		p, u, l := newProvider(t), &hookReceiver{}, &loginSite{}
		next := func(w http.ResponseWriter, r *http.Request) error {
			if strings.HasPrefix(r.URL.Path, "/user") {
				return l.next(w, r)
			}
			return u.next(w, r)
		}
		in := func() IngressConfig {
			return IngressConfig{LoginStart: []string{"/user/oauth2/*"}, LoginCallback: []string{"/user/oauth2/*/callback"},
				Hooks: []HookConfig{githubHook(t, "/hooks/ci")}, Logouts: []LogoutConfig{{Path: "/logout", Checker: p.checker()}}}
		}
		ingressBubble(t, classes(name, c), in, next, func(t *testing.T, s *ingressServer) {
			for range 3 {
				raw := map[admission.Class]string{
					admission.LoginStart: get(startPath, "192.0.2.1"), admission.LoginCallback: get(callbackPath+"?code=1&state=2", "192.0.2.1"),
					admission.Webhook: delivery{body: "{}", addr: "192.0.2.1"}.bytes(), admission.Logout: logoutPost("192.0.2.1", p.token(false, "k1")),
				}[class]
				if code, _ := s.send(raw); code >= 400 {
					t.Errorf("%s: %d in dry run", name, code)
				}
			}
			synctest.Wait()
			d := s.state.Controller.Snapshot().Decisions[class]
			if d[admission.DecisionAdmitted] != 1 || d[admission.DecisionWouldRefuse]+d[admission.DecisionWouldWait] != 2 {
				t.Errorf("%s: %d admitted, %d would be refused, %d would wait; want 1 and 2", name, d[admission.DecisionAdmitted],
					d[admission.DecisionWouldRefuse], d[admission.DecisionWouldWait])
			}
		})
	}
}

// A body that comes fast enough but does not fit into the deadline is nobody's
// fault: 503, so that a sender who sends again does.
func TestDeadlineDuringASteadyBody(t *testing.T) {
	u := &hookReceiver{}
	in := func() IngressConfig { return IngressConfig{Hooks: []HookConfig{githubHook(t, "/hooks/ci")}} }
	ingressBubble(t, admission.Config{}, in, u.next, func(t *testing.T, s *ingressServer) {
		start := time.Now()
		conn := s.open(delivery{body: "x", declared: 4 << 20}.head())
		synctest.Wait()
		go func() {
			for {
				if _, err := conn.Write(make([]byte, 10<<10)); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}()
		r, text := answerOf(t, conn)
		_ = conn.Close()
		if took := time.Since(start); r.StatusCode != http.StatusServiceUnavailable || text != overloaded || r.Header.Get("Retry-After") == "" || took != 8*time.Second {
			t.Errorf("%d %q after %v, want 503 at the deadline of 8 s", r.StatusCode, text, took)
		}
		synctest.Wait()
		if outcome(s.state, HookDeadline) != 1 || u.count() != 0 {
			t.Errorf("%v", s.state.Ingress.Snapshot().Webhooks)
		}
	})
}
