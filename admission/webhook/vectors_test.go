package webhook

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type headerLine struct {
	Name  string
	Value string
	B64   string `json:"value_b64"`
}

func (h headerLine) bytes(t testing.TB) string {
	t.Helper()
	if h.B64 == "" {
		return h.Value
	}
	raw, err := base64.StdEncoding.DecodeString(h.B64)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

type vector struct {
	ID, Profile, Method, Target string
	Headers                     []headerLine
	Body                        []byte          `json:"body_b64"`
	Kind                        string          `json:"secret_kind"`
	Secret                      json.RawMessage `json:"secret"`
	Expect, Stage, Why          string
	Status                      int
	Now                         int64
}

func (v vector) secrets(t testing.TB) Secrets {
	t.Helper()
	var list []string
	switch v.Kind {
	case "none":
	case "utf8_list":
		if err := json.Unmarshal(v.Secret, &list); err != nil {
			t.Fatal(err)
		}
	default:
		list = make([]string, 1)
		if err := json.Unmarshal(v.Secret, &list[0]); err != nil {
			t.Fatal(err)
		}
	}
	s, err := NewSecrets(list...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// request parses the vector as it would arrive on the wire.
func (v vector) request(t testing.TB) *http.Request {
	t.Helper()
	var raw bytes.Buffer
	fmt.Fprintf(&raw, "%s %s HTTP/1.1\r\n", v.Method, v.Target)
	for _, h := range v.Headers {
		fmt.Fprintf(&raw, "%s: %s\r\n", h.Name, h.bytes(t))
	}
	raw.WriteString("\r\n")
	r, err := http.ReadRequest(bufio.NewReader(&raw))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func readVectors(t testing.TB, name string) []vector {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []vector }
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	return file.Vectors
}

func TestVectors(t *testing.T) {
	for name, want := range map[string]int{"webhook-kat.json": 66, "webhook-malformed.json": 109} {
		vectors := readVectors(t, name)
		if len(vectors) != want {
			t.Fatalf("%s: %d vectors, want %d", name, len(vectors), want)
		}
		for _, v := range vectors {
			t.Run(v.ID, func(t *testing.T) { v.run(t) })
		}
	}
}

func (v vector) run(t *testing.T) {
	p, ok := Lookup(v.Profile)
	if !ok {
		t.Fatalf("no profile %q", v.Profile)
	}
	verifier, err := New(p, v.secrets(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(v.Now, 0)
	head, bad := verifier.CheckHead(v.request(t), now)
	var d Delivery
	if bad == nil && v.Expect != "accept_headers" {
		d, bad = head.Verify(v.Body)
	}
	if v.Expect == "refuse" {
		if bad == nil || bad.Status() != v.Status || string(bad.Stage()) != v.Stage {
			t.Fatalf("got %v, want status %d at stage %s: %s", describe(bad), v.Status, v.Stage, v.Why)
		}
		return
	}
	if bad != nil {
		t.Fatalf("refused %v, want %s: %s", describe(bad), v.Expect, v.Why)
	}
	if v.Expect == "accept" && !d.Verified || v.Expect == "accept_shape" && d.Verified {
		t.Fatalf("verified %t, want %s", d.Verified, v.Expect)
	}
}

func describe(r *Refusal) string {
	if r == nil {
		return "accepted"
	}
	return fmt.Sprint(r.Status(), " ", r.Stage(), " ", r.Reason())
}

func TestCapturedGitea(t *testing.T) {
	files, _ := filepath.Glob("testdata/gitea/*.json")
	secrets, err := NewSecrets("hook-secret")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, file := range files {
		name := filepath.Base(file)
		if name == "index.json" {
			continue
		}
		seen++
		t.Run(name, func(t *testing.T) {
			v := captured(t, file)
			p, _ := Lookup("gitea")
			verifier, err := New(p, secrets, 0)
			if err != nil {
				t.Fatal(err)
			}
			d, bad := verifier.Check(v.request(t), v.Body, time.Now())
			if name == "issues-unsigned.json" {
				if bad == nil || bad.Reason() != BadSignature {
					t.Fatalf("got %s, want %s", describe(bad), BadSignature)
				}
				return
			}
			if bad != nil {
				t.Fatalf("refused: %s", describe(bad))
			}
			slack := name == "issues-slack-type.json" // a signed body that names no repository
			if d.ID == "" || d.Event == "" || strings.HasPrefix(d.Repository, "alice/") == slack {
				t.Fatalf("facts %+v", d)
			}
		})
	}
	if seen < 17 {
		t.Fatalf("only %d captured deliveries", seen)
	}
}

func captured(t testing.TB, file string) vector {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Line    string `json:"request_line"`
		Headers [][2]string
		Body    string
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(c.Line)
	v := vector{Method: fields[0], Target: fields[1], Body: []byte(c.Body)}
	for _, h := range c.Headers {
		v.Headers = append(v.Headers, headerLine{Name: h[0], Value: h[1]})
	}
	return v
}
