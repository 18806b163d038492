package gate

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// The lanes of webhooks, logouts and logins know shared networks as the classes
// of git do: an office's address meets the cap of an office.
func TestSharedNetworkInTheLanes(t *testing.T) {
	const office, single = "203.0.113.7", "198.51.100.7"
	lanes := map[admission.Class]func(addr string) string{
		admission.Webhook:       func(addr string) string { return delivery{body: `{"n":1}`, addr: addr}.bytes() },
		admission.Logout:        func(addr string) string { return logoutPost(addr, newProvider(t).token(false, "k1")) },
		admission.LoginStart:    func(addr string) string { return get(startPath, addr) },
		admission.LoginCallback: func(addr string) string { return get(callbackPath+"?code=x&state=y", addr) },
	}
	cfg := admission.Config{Classes: map[string]*admission.ClassConfig{}}
	for class := range lanes {
		cfg.Classes[class.String()] = &admission.ClassConfig{Max: ptr(8), CallerMax: ptr(1), Wait: &admission.WaitConfig{}}
	}
	in := func() IngressConfig {
		return IngressConfig{
			Hooks: []HookConfig{githubHook(t, "/hooks/ci")}, Logouts: []LogoutConfig{{Path: "/logout"}},
			LoginStart: []string{"/user/oauth2/*"}, LoginCallback: []string{callbackPath},
		}
	}
	u := &hookReceiver{}
	ingressBubble(t, cfg, in, u.next, func(t *testing.T, s *ingressServer) {
		u.hold = make(chan struct{}) // of the bubble
		s.gate.opts.People = People{Shared: networks("203.0.113.0/24"), SharedMax: 3}
		policy, _ := cfg.Compile()
		for class := range lanes {
			policy.Classes[class].CallerMax[admission.ByCustom3] = 3
		}
		s.state.Controller.Apply(policy)
		for class, request := range lanes {
			for addr, want := range map[string]int{office: 3, single: 1} {
				before := inUse(s.state, class)
				for range 4 {
					defer s.open(request(addr)).Close()
					synctest.Wait()
				}
				if got := inUse(s.state, class) - before; got != want {
					t.Errorf("%s: %s holds %d, want %d", class, addr, got, want)
				}
			}
		}
		close(u.hold)
		synctest.Wait()
	})
}

// As many bodies may arrive at once from an office's address as from the people
// it stands for.
func TestSharedNetworkSendsItsBodies(t *testing.T) {
	ingressBubble(t, admission.Config{}, func() IngressConfig { return IngressConfig{} }, nil, func(t *testing.T, s *ingressServer) {
		s.gate.opts.People = People{Shared: networks("203.0.113.0/24"), SharedMax: 3}
		refused := func(addr string) uint64 {
			before := s.state.Controller.Snapshot().Decisions[admission.Anonymous][admission.DecisionRefused(admission.ReasonBodyBudget)]
			for range 40 {
				defer s.open("POST " + readRPC + " HTTP/1.1\r\nHost: x\r\nX-Test-Addr: " + addr +
					"\r\nContent-Type: application/x-git-upload-pack-request\r\nContent-Length: 100\r\n\r\n0011").Close()
			}
			synctest.Wait()
			return s.state.Controller.Snapshot().Decisions[admission.Anonymous][admission.DecisionRefused(admission.ReasonBodyBudget)] - before
		}
		if n := refused("203.0.113.7"); n != 0 {
			t.Errorf("%d of an office's 40 bodies were refused", n)
		}
		if n := refused("198.51.100.7"); n != 40-bodyCallerCount {
			t.Errorf("%d of one caller's 40 bodies were refused, want %d", n, 40-bodyCallerCount)
		}
	})
}

// An office of three has three turns for one of everybody else's, and a full
// lane drops another's second waiter before an office's third.
func TestSharedNetworkInTheStartLane(t *testing.T) {
	who := map[byte]startClaim{'f': {9, 91, 91, 1}, 's': {2, 21, 21, 1}, 'o': {1, 11, 0, 3}, 'x': {3, 31, 31, 1}, 'y': {4, 41, 41, 1}}
	for arrivals, want := range map[string]string{
		"f1 s1 s2 o1 o2 o3 x1":    "f1 s1 o1 x1 o2 o3 s2", // f1 takes the token
		"f1 s1 s2 o1 o2 o3 x1 y1": "f1 s2:queue_full s1 o1 x1 y1 o2 o3",
	} {
		synctest.Test(t, func(t *testing.T) {
			st, p := startLaneOf(t, admission.ClassConfig{
				Wait:   &admission.WaitConfig{Size: 6, Max: admission.Duration(time.Minute)},
				Bucket: &admission.BucketConfig{Burst: 1, PerSecond: 1},
			})
			var order []string
			for name := range strings.FieldsSeq(arrivals) {
				go func() {
					if _, r := st.acquireStart(context.Background(), p, who[name[0]]); r != nil {
						name += ":" + r.reason.String()
					}
					st.mu.Lock()
					order = append(order, name)
					st.mu.Unlock()
				}()
				synctest.Wait()
			}
			time.Sleep(10 * time.Second)
			st.mu.Lock()
			defer st.mu.Unlock()
			if got := strings.Join(order, " "); got != want {
				t.Errorf("%s: order %q, want %q", arrivals, got, want)
			}
		})
	}
}
