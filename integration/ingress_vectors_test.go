package integration

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// vector is one delivery of the files that the engine's tests use too.
type vector struct {
	ID, Profile, Method, Target string
	Headers                     []struct {
		Name, Value string
		B64         string `json:"value_b64"`
	}
	Body   []byte          `json:"body_b64"`
	Kind   string          `json:"secret_kind"`
	Secret json.RawMessage `json:"secret"`
	Expect string
	Stage  string
	Status int
	Now    int64
	Why    string
}

func (v *vector) secrets(t *testing.T) (list []string) {
	t.Helper()
	var err error
	switch v.Kind {
	case "none":
	case "utf8_list":
		err = json.Unmarshal(v.Secret, &list)
	default:
		list = make([]string, 1)
		err = json.Unmarshal(v.Secret, &list[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func readJSON(t *testing.T, into any, path ...string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(append([]string{harness.Root(t), "admission"}, path...)...))
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func readVectors(t *testing.T, name string, want int) []*vector {
	t.Helper()
	var file struct{ Vectors []*vector }
	readJSON(t, &file, "webhook", "testdata", name)
	if len(file.Vectors) != want {
		t.Fatalf("%s: %d vectors, want %d", name, len(file.Vectors), want)
	}
	return file.Vectors
}

// capturedVectors are real deliveries of a Gitea server; all but the unsigned one are genuine.
func capturedVectors(t *testing.T) (all []*vector) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(harness.Root(t), "admission/webhook/testdata/gitea/*.json"))
	for _, path := range files {
		if filepath.Base(path) == "index.json" {
			continue
		}
		var c struct {
			Line    string `json:"request_line"`
			Headers [][2]string
			Body    string
		}
		readJSON(t, &c, "webhook", "testdata", "gitea", filepath.Base(path))
		fields := strings.Fields(c.Line)
		v := &vector{ID: "captured " + filepath.Base(path), Profile: "gitea", Method: fields[0], Target: fields[1], Body: []byte(c.Body),
			Kind: "utf8", Secret: json.RawMessage(`"hook-secret"`), Expect: "accept"}
		for _, h := range c.Headers {
			v.Headers = append(v.Headers, struct {
				Name, Value string
				B64         string `json:"value_b64"`
			}{Name: h[0], Value: h[1]})
		}
		if strings.Contains(v.ID, "unsigned") {
			v.Expect, v.Status, v.Stage = "refuse", http.StatusUnauthorized, "headers"
		}
		all = append(all, v)
	}
	if len(all) < 18 {
		t.Fatalf("only %d captured deliveries", len(all))
	}
	return all
}

// TestVectorsThroughTheGateway sends every known delivery through the running gateway. A request that is refused by its
// headers is answered although its body is never sent, and spends nothing; any other spends one request and the bytes that
// came; what is genuine reaches the worker byte for byte, with every header it had.
func TestVectorsThroughTheGateway(t *testing.T) {
	all := slices.Concat(readVectors(t, "webhook-kat.json", 66), readVectors(t, "webhook-malformed.json", 109), capturedVectors(t))
	worker := harness.StartReceiver(t)
	block, paths := vectorHooks(t, all)
	s := startIngress(t, worker.Addr, slowBudgets+block)
	before := s.ingressState(t, "webhook")
	refused := map[string]int{} // by stage, or by status
	var sending sync.WaitGroup
	for i, v := range all {
		if v.byHead() {
			refused[v.Stage]++
			refused[strconv.Itoa(v.Status)]++
			v.moveToNow(t)
			sending.Go(func() {
				if r, err := sendRaw("", s.addr, v.head(paths[i]), ""); err != nil || r.StatusCode != v.Status || r.proceeds > 0 {
					t.Errorf("%s: answered %v %v, want %d: %s", v.ID, r, err, v.Status, v.Why)
				}
			})
		}
	}
	sending.Wait()
	got := changeOf(before, s.ingressState(t, "webhook"), "webhook")
	w := got.webhooks
	if got.requests > 0 || got.bytes > 0 || got.inUse != 0 || worker.Count() != 0 {
		t.Errorf("refused by their headers: %+v, %d at the worker, want nothing spent and none", got, worker.Count())
	}
	if w["method"] != int64(refused["405"]) || w["length"]+w["content"]+w["header"] != int64(refused["400"]+refused["413"]) ||
		w["credential"] != int64(refused["token"]) || w["signature"]+w["timestamp"]+w["credential"] != int64(refused["401"]) {
		t.Errorf("outcomes %v do not fit to %v", w, refused)
	}
	for i, v := range all {
		if !v.byHead() {
			t.Run(v.ID, func(t *testing.T) { s.vector(t, worker, v, paths[i]) })
		}
	}
}

// byHead reports whether the vector is refused before its body is looked at.
func (v *vector) byHead() bool {
	return v.Expect == "refuse" && !v.droppedAlias() && slices.Contains([]string{"headers", "timestamp", "token"}, v.Stage)
}

// droppedAlias: Caddy itself takes a header whose name has a _ or a dot out of every request, so that it reaches neither the
// gateway nor the worker; what is left of these two is genuine.
func (v *vector) droppedAlias() bool {
	return v.ID == "sig-underscore-alias" || v.ID == "sig-dot-alias"
}

// vectorHooks gives each pair of profile and secrets a hook of its own and returns the path of each vector's.
func vectorHooks(t *testing.T, all []*vector) (block string, paths []string) {
	known := map[string]string{}
	for _, v := range all {
		key := v.Profile + " " + string(v.Secret)
		if known[key] == "" {
			known[key] = fmt.Sprintf("/hook/%d", len(known))
			block += fmt.Sprintf("webhook %s {\n profile %s\n", known[key], v.Profile)
			for _, secret := range v.secrets(t) {
				block += " secret_file " + secretFile(t, secret) + "\n"
			}
			block += "}\n"
		}
		paths = append(paths, known[key])
	}
	return block, paths
}

func (s *ingressSite) vector(t *testing.T, worker *harness.Receiver, v *vector, path string) {
	v.moveToNow(t)
	head := v.head(path)
	body := string(v.Body)
	switch {
	case v.Expect == "accept_headers": // the file declares more than it has
		body = strings.Repeat("\x00", v.declared())
	case strings.Contains(head, "chunked"):
		body = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	}
	before, arrived := s.ingressState(t, "webhook"), worker.Count()
	r := mustPost(t, s.addr, head, body)
	want := ingressChange{requests: 1, bytes: float64(max(len(v.Body), v.declared()))}
	outcome, status := v.outcome()
	if r.StatusCode != status {
		t.Errorf("answered %d, want %d: %s", r.StatusCode, status, v.Why)
	}
	var got ingressChange
	harness.Eventually(t, 10*time.Second, "the delivery's place in the state", func() error {
		got = changeOf(before, s.ingressState(t, "webhook"), "webhook")
		if got.inUse != 0 || len(got.webhooks) == 0 || !near(got.requests, want.requests) || !near(got.bytes, want.bytes) {
			return fmt.Errorf("got %+v, want %v requests and %v bytes spent", got, want.requests, want.bytes)
		}
		return nil
	})
	if len(got.webhooks) != 1 || got.webhooks[outcome] != 1 {
		t.Errorf("outcomes %v, want one %s: %s", got.webhooks, outcome, v.Why)
	}
	switch seen := worker.All()[arrived:]; {
	case status != http.StatusOK && len(seen) > 0:
		t.Errorf("the worker saw a refused delivery: %+v", seen)
	case status == http.StatusOK && len(seen) != 1:
		t.Errorf("the worker saw %d deliveries, want 1", len(seen))
	case status == http.StatusOK:
		v.same(t, seen[0], path)
	}
}

// outcome is what becomes of a vector whose body is read.
func (v *vector) outcome() (string, int) {
	switch {
	case v.Expect == "accept_headers":
		return "mac", http.StatusUnauthorized // its body is all zeros
	case v.Expect != "refuse", v.droppedAlias():
		return "delivered", http.StatusOK
	case v.Stage == "form":
		return "form", v.Status
	}
	return "mac", v.Status
}

func (v *vector) values(name string) (values []*string) {
	for i := range v.Headers {
		if strings.EqualFold(v.Headers[i].Name, name) {
			values = append(values, &v.Headers[i].Value)
		}
	}
	return values
}

// declared is the length that the vector's header gives, 0 for none.
func (v *vector) declared() int {
	if l := v.values("Content-Length"); len(l) == 1 {
		n, _ := strconv.Atoi(*l[0])
		return n
	}
	return 0
}

func (v *vector) head(path string) string {
	var b bytes.Buffer
	query := ""
	if _, q, ok := strings.Cut(v.Target, "?"); ok {
		query = "?" + q
	}
	fmt.Fprintf(&b, "%s %s%s HTTP/1.1\r\n", v.Method, path, query)
	for _, h := range v.Headers {
		value := []byte(h.Value)
		if h.B64 != "" {
			value, _ = base64.StdEncoding.DecodeString(h.B64)
		}
		fmt.Fprintf(&b, "%s: %s\r\n", h.Name, value)
	}
	b.WriteString("\r\n")
	return b.String()
}

// same wants a delivery to have arrived as it was sent.
func (v *vector) same(t *testing.T, got harness.Received, path string) {
	t.Helper()
	if !bytes.Equal(got.Body, v.Body) || got.Length != int64(len(v.Body)) || got.Method != v.Method {
		t.Errorf("%s with %d bytes of declared %d arrived, want the %d that were sent", got.Method, len(got.Body), got.Length, len(v.Body))
	}
	if p, _, _ := strings.Cut(got.URI, "?"); p != path {
		t.Errorf("arrived at %s, want %s", got.URI, path)
	}
	for _, h := range v.Headers {
		name := http.CanonicalHeaderKey(h.Name)
		if strings.ContainsAny(name, "_.") && got.Header[name] == nil || slices.Contains([]string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Expect"}, name) {
			continue
		}
		if !slices.Contains(got.Header[name], strings.TrimSpace(h.Value)) || len(got.Header[name]) != len(v.values(h.Name)) {
			t.Errorf("%s arrived as %q, want %q", name, got.Header[name], h.Value)
		}
	}
}

var tenDigits = regexp.MustCompile(`^\d{10}$`)

// moveToNow moves a signed time from the vector's clock to today's and signs again what was signed rightly. What lies at the
// edge of the tolerance moves ten seconds away from it, for the clock goes on; the edge itself is the engine's test.
func (v *vector) moveToNow(t *testing.T) {
	t.Helper()
	times, ids := v.values("webhook-timestamp"), v.values("webhook-id")
	if v.Now == 0 || len(times) == 0 || len(ids) == 0 || !tenDigits.MatchString(*times[0]) {
		return
	}
	old := *times[0]
	sent, _ := strconv.ParseInt(old, 10, 64)
	ahead := sent - v.Now
	switch away := max(ahead, -ahead); {
	case away > 290 && away <= 300:
		ahead -= ahead / away * 10
	case away > 300 && away <= 310:
		ahead += ahead / away * 10
	}
	moved := strconv.FormatInt(time.Now().Unix()+ahead, 10)
	for _, secret := range v.secrets(t) {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil {
			t.Fatal(err)
		}
		mac := func(at string) string {
			m := hmac.New(sha256.New, key)
			fmt.Fprintf(m, "%s.%s.%s", *ids[0], at, v.Body)
			return base64.StdEncoding.EncodeToString(m.Sum(nil))
		}
		for _, value := range v.values("webhook-signature") {
			*value = strings.ReplaceAll(*value, mac(old), mac(moved))
		}
	}
	for _, at := range times {
		if *at == old {
			*at = moved
		}
	}
}
