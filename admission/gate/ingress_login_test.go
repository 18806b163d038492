package gate

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-admission/gateway/admission"
)

// loginSite redirects starts to a provider with a fresh state and counts.
type loginSite struct {
	starts, callbacks atomic.Int64
	body              atomic.Value
	hold              chan struct{}
}

func (l *loginSite) next(w http.ResponseWriter, r *http.Request) error {
	if l.hold != nil {
		select {
		case <-l.hold:
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
	if strings.HasSuffix(r.URL.Path, "/callback") {
		l.callbacks.Add(1)
		_ = r.ParseForm()
		l.body.Store(r.PostForm.Encode())
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	n := l.starts.Add(1)
	w.Header().Set("Location", fmt.Sprintf("https://idp.example.test/auth?client_id=ci&state=s%d&scope=openid", n))
	w.WriteHeader(http.StatusFound)
	return nil
}

func loginBubble(t *testing.T, cfg admission.Config, l *loginSite, f func(t *testing.T, s *ingressServer)) {
	t.Helper()
	ingressBubble(t, cfg, func() IngressConfig {
		return IngressConfig{LoginStart: []string{"/user/oauth2/*"}, LoginCallback: []string{"/user/oauth2/*/callback"}}
	}, l.next, f)
}

func get(target, addr string) string {
	return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\nX-Test-Addr: %s\r\n\r\n", target, addr)
}

const (
	startPath    = "/user/oauth2/idp"
	callbackPath = "/user/oauth2/idp/callback"
)

// Forty addresses forging starts and callbacks beside one honest user, whether
// they share its network or not: the honest start and callback pass.
func TestForgedLoginsDoNotBlockAnHonestOne(t *testing.T) {
	for name, addr := range map[string]string{"same network": "198.51.100.%d", "other networks": "198.51.%d.1"} {
		t.Run(name, func(t *testing.T) {
			l := &loginSite{}
			loginBubble(t, admission.Config{}, l, func(t *testing.T, s *ingressServer) {
				stop := make(chan struct{})
				for i := range 40 {
					from := fmt.Sprintf(addr, i+1)
					every(500*time.Millisecond, stop, func(n int) {
						s.fire(get(startPath, from))
						s.fire(get(fmt.Sprintf("%s?code=x&state=made-up-%d-%d", callbackPath, i, n), from))
					})
				}
				time.Sleep(15 * time.Second)
				for i := range 5 {
					honest := fmt.Sprintf("198.51.100.%d", 200+i)
					start := time.Now()
					c := s.open(get(startPath, honest))
					r, _ := answerOf(t, c)
					_ = c.Close()
					if r.StatusCode != http.StatusFound || time.Since(start) > time.Second {
						t.Errorf("honest start %d: %d after %v", i, r.StatusCode, time.Since(start))
						continue
					}
					state := redirectState(r.Header.Get("Location"))
					if code, _ := s.send(get(callbackPath+"?code=y&state="+state, honest)); code != http.StatusNoContent {
						t.Errorf("honest callback %d: %d", i, code)
					}
					time.Sleep(3 * time.Second)
				}
				close(stop)
				time.Sleep(10 * time.Second)
			})
		})
	}
}

// A seen state has its own budget, once.
func TestCallbackStateIsUsedOnce(t *testing.T) {
	l := &loginSite{}
	loginBubble(t, admission.Config{}, l, func(t *testing.T, s *ingressServer) {
		if code, _ := s.send(get(startPath, "192.0.2.1")); code != 302 {
			t.Fatal(code)
		}
		codes := map[int]int{}
		for i := range 20 { // uses up the unknown budget of 16
			code, _ := s.send(get(fmt.Sprintf("%s?code=y&state=u%d", callbackPath, i), "192.0.2.1"))
			codes[code]++
		}
		if codes[204] != 16 || codes[503] != 4 {
			t.Fatalf("unknown states: %v", codes)
		}
		if code, _ := s.send(get(callbackPath+"?code=y&state=s1", "192.0.2.1")); code != 204 {
			t.Errorf("seen state: %d", code)
		}
		if code, _ := s.send(get(callbackPath+"?code=y&state=s1", "192.0.2.1")); code != 503 {
			t.Errorf("seen state again: %d, want the unknown budget's 503", code)
		}
		if n := s.state.Ingress.Snapshot().Limited["login_callback"]; n != 5 {
			t.Errorf("%d limited, want 5", n)
		}
	})
}

func TestCallbackStateExpires(t *testing.T) {
	l := &loginSite{}
	loginBubble(t, admission.Config{}, l, func(t *testing.T, s *ingressServer) {
		s.send(get(startPath, "192.0.2.1"))
		time.Sleep(stateFor + time.Second)
		s.send(get(startPath, "192.0.2.1"))
		if n := s.state.Ingress.Snapshot().States; n != 1 {
			t.Errorf("%d states remembered, want the fresh one", n)
		}
	})
	st := newIngressState(nil)
	for i := range stateMax + 10 {
		st.sawState(admission.Key(i+1), time.Now())
	}
	if len(st.login.states) != stateMax || len(st.login.order) != stateMax {
		t.Errorf("%d states, want at most %d", len(st.login.states), stateMax)
	}
}

// response_mode=form_post: the state is in the body, which is replayed.
func TestCallbackFormPost(t *testing.T) {
	l := &loginSite{}
	loginBubble(t, admission.Config{}, l, func(t *testing.T, s *ingressServer) {
		s.send(get(startPath, "192.0.2.1"))
		for i := range 16 {
			s.send(get(fmt.Sprintf("%s?code=y&state=u%d", callbackPath, i), "192.0.2.1"))
		}
		form := "code=y&state=s1"
		raw := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s", callbackPath, len(form), form)
		if code, _ := s.send(raw); code != 204 || l.body.Load() != form {
			t.Errorf("%d, upstream read %q", code, l.body.Load())
		}
	})
}

// Unknown callbacks hold at most half of the pool.
func TestUnknownCallbacksHoldHalfThePool(t *testing.T) {
	l := &loginSite{}
	loginBubble(t, admission.Config{}, l, func(t *testing.T, s *ingressServer) {
		s.send(get(startPath, "192.0.2.1"))
		l.hold = make(chan struct{})
		for i := range 8 {
			go s.fire(get(fmt.Sprintf("%s?code=y&state=u%d", callbackPath, i), "192.0.2.1"))
		}
		synctest.Wait()
		if n := inUse(s.state, admission.LoginCallback); n != 4 {
			t.Errorf("%d unknown callbacks hold a place, want 4", n)
		}
		go s.fire(get(callbackPath+"?code=y&state=s1", "192.0.2.1"))
		synctest.Wait()
		if n := inUse(s.state, admission.LoginCallback); n != 5 {
			t.Errorf("%d in use; the seen state's callback must have a place", n)
		}
		close(l.hold)
	})
}

func TestSharedLoginPath(t *testing.T) {
	l := &loginSite{}
	in := func() IngressConfig {
		return IngressConfig{LoginStart: []string{"/authorize"}, LoginCallback: []string{"/authorize"}}
	}
	ingressBubble(t, admission.Config{}, in, l.next, func(t *testing.T, s *ingressServer) {
		for target, class := range map[string]admission.Class{
			"/authorize":                  admission.LoginStart,
			"/authorize?code=1":           admission.LoginStart,
			"/authorize?state=1":          admission.LoginStart,
			"/authorize?code=1&state=2":   admission.LoginCallback,
			"/authorize?error=no&state=2": admission.LoginCallback,
			"/authorize?code=%zz&state=2": admission.LoginStart,
		} {
			before := s.state.Controller.Snapshot().Decisions[class][admission.DecisionAdmitted]
			s.send(get(target, "192.0.2.1"))
			if after := s.state.Controller.Snapshot().Decisions[class][admission.DecisionAdmitted]; after != before+1 {
				t.Errorf("%s was not admitted as %s", target, class)
			}
		}
	})
}

// A start waits at most five seconds and is then told when to come back.
func TestStartWaitsFiveSeconds(t *testing.T) {
	cfg := admission.Config{Classes: map[string]*admission.ClassConfig{"login_start": {Bucket: &admission.BucketConfig{Burst: 1, PerSecond: 0.1}}}}
	l := &loginSite{}
	loginBubble(t, cfg, l, func(t *testing.T, s *ingressServer) {
		s.send(get(startPath, "192.0.2.1"))
		start := time.Now()
		c := s.open(get(startPath, "192.0.2.2"))
		r, _ := answerOf(t, c)
		_ = c.Close()
		if r.StatusCode != 503 || time.Since(start) != 5*time.Second || r.Header.Get("Retry-After") == "" {
			t.Errorf("%d after %v", r.StatusCode, time.Since(start))
		}
		if s.state.Ingress.Snapshot().Waiting != 0 {
			t.Error("a waiter was left behind")
		}
	})
}

// startLaneOf is a State's ingress part whose class login_start is c.
func startLaneOf(t *testing.T, c admission.ClassConfig) (*IngressState, *admission.ClassPolicy) {
	t.Helper()
	policy, problems := admission.Config{Classes: map[string]*admission.ClassConfig{"login_start": &c}}.Compile()
	if policy == nil {
		t.Fatal(problems)
	}
	return newIngressState(admission.NewController(policy)), &policy.Classes[admission.LoginStart]
}

// A start that leaves takes no token with it.
func TestStartLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, p := startLaneOf(t, admission.ClassConfig{
			Wait:   &admission.WaitConfig{Size: 4, Max: admission.Duration(time.Minute)},
			Bucket: &admission.BucketConfig{Burst: 1, PerSecond: 1},
		})
		if _, r := st.acquireStart(context.Background(), p, startClaim{1, 1, 1, 1}); r != nil {
			t.Fatal(r)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		if _, r := st.acquireStart(ctx, p, startClaim{1, 1, 1, 1}); r == nil || r.reason != admission.ReasonGone {
			t.Errorf("%v, want gone", r)
		}
		start := time.Now()
		if _, r := st.acquireStart(context.Background(), p, startClaim{2, 2, 2, 1}); r != nil || time.Since(start) > time.Second {
			t.Errorf("%v after %v", r, time.Since(start))
		}
	})
}

// The lane's order, told as text: who gets the next token.
func TestStartLaneOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, p := startLaneOf(t, admission.ClassConfig{
			Wait:   &admission.WaitConfig{Size: 5, Max: admission.Duration(time.Minute)},
			Bucket: &admission.BucketConfig{Burst: 1, PerSecond: 1},
		})
		var order []string
		arrive := func(name string, group, caller admission.Key) {
			go func() {
				_, r := st.acquireStart(context.Background(), p, startClaim{group, caller, caller, 1})
				if r != nil {
					name += ":" + r.reason.String()
				}
				st.mu.Lock()
				order = append(order, name)
				st.mu.Unlock()
			}()
			synctest.Wait()
		}
		arrive("a1", 1, 11) // takes the token
		arrive("a2", 1, 11)
		arrive("a3", 1, 11)
		arrive("b1", 1, 12) // same group, never served
		arrive("c1", 2, 21) // another group, never served
		arrive("c2", 2, 21)
		arrive("d1", 3, 31) // the lane is full: the last in order goes
		time.Sleep(10 * time.Second)
		st.mu.Lock()
		defer st.mu.Unlock()
		want := "a1 a3:queue_full c1 d1 b1 a2 c2"
		if got := strings.Join(order, " "); got != want {
			t.Errorf("order %q, want %q", got, want)
		}
	})
}
