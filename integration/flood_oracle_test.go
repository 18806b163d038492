package integration

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-admission/gateway/integration/flood"
	"github.com/caddy-admission/gateway/integration/harness"
)

// TestStrangersLearnNothingAboutASecret proves a secret from one address and then uses it, and a made-up one, from another:
// the gateway's own answers and all of its counters are the same for both. Otherwise refusals would say whether a guess is
// right, as fast as they can be asked for and without the server ever noticing.
func TestStrangersLearnNothingAboutASecret(t *testing.T) {
	s := newCrowdServer(t, 4096, flood.BackendConfig{Workers: 16})
	latch := harness.StartLatch(t, s.backend.URL[len("http://"):])
	s.front(t, "admission {\n total 16\n wait off\n}", latch.Addr)
	t.Cleanup(latch.Release) // before the gateway ends, which waits for its requests
	owner := s.someone(t, s.addr)
	owner.push(t, patience)
	if n := s.Class(t, "push").Decisions["admitted"]; n == 0 {
		t.Fatal("the owner's push did not prove the secret")
	}

	// No place is free in the classes of strangers, so that the gateway answers by itself.
	candidates, anonymous := s.Class(t, "candidate").Max, s.Class(t, "anonymous").Max
	for i := range candidates {
		harness.Send(t, harness.Loopback(i), s.addr, request("GET", discovery("receive"), harness.LatchHeader+": 1", basic("x", fmt.Sprint(i))))
	}
	for i := range anonymous {
		harness.Send(t, harness.Loopback(100+i), s.addr, harness.FetchRequest("/pub.git", s.tip, harness.LatchHeader+": 1"))
	}
	latch.WaitKept(t, candidates+anonymous)

	secrets := []string{basic(owner.Name, secretOf(owner.Name)), basic(owner.Name, "made up by a stranger")}
	for _, ask := range []struct{ name, request string }{
		{"discovery of receive-pack", request("GET", discovery("receive"), "@")},
		{"discovery of upload-pack", request("GET", discovery("upload"), "@")},
		{"receive-pack", post("/pub.git/git-receive-pack", "application/x-git-receive-pack-request", "0000")},
		{"upload-pack", harness.FetchRequest("/pub.git", s.tip, "Connection: close", "@")},
		{"LFS batch", post("/pub.git/info/lfs/objects/batch", "application/vnd.git-lfs+json", `{"operation":"upload","objects":[]}`)},
		{"LFS locks", request("GET", "/pub.git/info/lfs/locks", "@")},
		{"look-alike", request("GET", "/pub.git/%69nfo/refs?service=git-receive-pack", "@")},
		{"another spelling", request("GET", "//pub.git/info/refs?service=git-receive-pack", "@")},
	} {
		t.Run(ask.name, func(t *testing.T) {
			answers, counts := make([]string, 2), make([]map[string]string, 2)
			for i, secret := range secrets {
				before := s.counters(t)
				resp, body := harness.Ask(t, harness.Loopback(9000), s.addr, strings.Replace(ask.request, "@", secret, 1))
				if !strings.HasPrefix(resp.Header.Get(refusalHeader), "refused") {
					t.Fatalf("%s, not an answer of the gateway's own", resp.Status)
				}
				answers[i], counts[i] = likeness(resp, body), s.change(t, before)
			}
			if answers[0] != answers[1] {
				t.Errorf("answers differ:\nproven elsewhere: %s\nmade up:          %s", answers[0], answers[1])
			}
			if !maps.Equal(counts[0], counts[1]) {
				t.Errorf("counters differ:\nproven elsewhere: %v\nmade up:          %v", counts[0], counts[1])
			}
			if len(counts[0]) == 0 {
				t.Error("no counter moved: the comparison would see nothing")
			}
		})
	}
}

func discovery(service string) string { return "/pub.git/info/refs?service=git-" + service + "-pack" }

func basic(user, secret string) string {
	return strings.TrimSpace(flood.BasicHeader(user, secret))
}

func post(target, contentType, body string) string {
	return request("POST", target, "Content-Type: "+contentType, fmt.Sprintf("Content-Length: %d", len(body)), "@") + body
}

var digits = regexp.MustCompile(`\d+`)

// likeness is an answer without what differs between two equal ones: the time, and when to come back, which is spread.
func likeness(resp *http.Response, body string) string {
	resp.Header.Del("Date")
	lines := []string{resp.Status}
	for name, values := range resp.Header {
		value := fmt.Sprint(values)
		if name == "Retry-After" || name == "Content-Length" {
			value = digits.ReplaceAllString(value, "N")
		}
		lines = append(lines, name+": "+value)
	}
	slices.Sort(lines)
	return strings.Join(append(lines, digits.ReplaceAllString(body, "N")), "\n")
}

// counters reads every series of the gateway's own but the ones that measure time.
func (s *crowdSite) counters(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for line := range strings.Lines(s.Metrics(t)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(series, "caddy_admission_") && !strings.Contains(series, "_bucket{") && !strings.Contains(series, "_sum") {
			all[series] = value
		}
	}
	return all
}

// change returns the series that are not as before, with what they became relative to it.
func (s *crowdSite) change(t *testing.T, before map[string]string) map[string]string {
	t.Helper()
	changed := map[string]string{}
	for series, value := range s.counters(t) {
		if old := before[series]; old != value {
			var a, b float64
			fmt.Sscan(old, &a)
			fmt.Sscan(value, &b)
			changed[series] = fmt.Sprintf("%+g", b-a)
		}
	}
	return changed
}
