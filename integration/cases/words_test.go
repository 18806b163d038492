package cases

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestTokens(t *testing.T) {
	tok := newTokens("127.0.0.1:80")
	m := hmac.New(sha256.New, []byte(tok.secret("S1")))
	m.Write([]byte("body"))
	sum := hex.EncodeToString(m.Sum(nil))
	for _, x := range []struct {
		text string
		i    int
		want string
	}{
		{"Basic {{b64:dev:pw}}", 0, "Basic ZGV2OnB3"},
		{"{{b64:user{{i}}:pw}}", 7, "dXNlcjc6cHc="},
		{"10.{{0..255}}.{{0..255}}.1", 0, "10.0.0.1"},
		{"10.{{0..255}}.{{0..255}}.1", 257, "10.1.1.1"},
		{"{{5..6}}", 3, "6"},
		{"http://{{gw}}/x", 0, "http://127.0.0.1:80/x"},
		{"{{repeat:ab:3}}", 0, "ababab"},
		{"{{hmac256:S1}}", 0, "sha256=" + sum},
		{"{{hmac256hex:S1}}", 0, sum},
		{"{{secret:S1}}", 0, tok.secret("S1")},
		{"plain", 0, "plain"},
	} {
		got, err := tok.expand(x.text, scope{i: x.i, body: []byte("body")})
		if err != nil || got != x.want {
			t.Errorf("%s (%d) = %q, %v; want %q", x.text, x.i, got, err, x.want)
		}
	}
	for text, length := range map[string]int{"{{hex7}}": 7, "{{hexupper6}}": 6, "{{uuid}}": 36, "{{sess:a}}": 32, "{{hmac1hex:S1}}": 40} {
		got, err := tok.expand(text, scope{})
		again, _ := tok.expand(text, scope{})
		if err != nil || len(got) != length {
			t.Errorf("%s = %q, %v; want %d characters", text, got, err, length)
		}
		if random := strings.Contains(text, "uuid") || strings.Contains(text, "{{hex"); random == (got == again) {
			t.Errorf("%s twice = %q and %q", text, got, again)
		}
	}
	for _, text := range []string{"{{b65:x}}", "{{hex}}", "{{hex0}}", "{{jwt:other}}", "{{open", "{{repeat:x}}", "{{9..1}}", "{{}}"} {
		if got, err := tok.expand(text, scope{}); err == nil {
			t.Errorf("%s = %q, want an error", text, got)
		}
	}
}

func TestLogoutTokenHasThreeParts(t *testing.T) {
	tok := newTokens("")
	for _, kind := range []string{"idp", "badkey"} {
		got, err := tok.expand("{{jwt:"+kind+"}}", scope{})
		if err != nil || strings.Count(got, ".") != 2 {
			t.Errorf("%s: %q, %v", kind, got, err)
		}
	}
}

func TestBehaviours(t *testing.T) {
	good := map[string]behaviour{
		"hold":                      {{do: doHold}},
		"ok303":                     {{do: doOK, status: 303}},
		"status:401-early":          {{do: doStatus, status: 401, early: true}},
		"status:200-badlogin":       {{do: doStatus, status: 200}},
		"silence:5000,stream:64KiB": {{do: doSilence, wait: 5 * time.Second}, {do: doStream, size: 64 << 10}},
		"stream:1MiB,close-mid":     {{do: doStream, size: 1 << 20}, {do: doCloseMid}},
		"sideband:progress:250":     {{do: doSideband, band: "progress", wait: 250 * time.Millisecond}},
		"sideband:8KiB":             {{do: doSideband, size: 8 << 10}},
		"103-then-200":              {{do: doEarlyHints}},
	}
	for text, want := range good {
		got, err := parseBehaviour(text)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%s: %v, %v", text, got, err)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: part %d is %+v, want %+v", text, i, got[i], want[i])
			}
		}
	}
	for _, text := range []string{"", "hold,", "ok", "ok99", "status:x", "slow", "slow:x", "stream:", "sideband:loud", "dance", "hold:1"} {
		if got, err := parseBehaviour(text); err == nil {
			t.Errorf("%q = %v, want an error", text, got)
		}
	}
}

func TestRange(t *testing.T) {
	for _, x := range []struct {
		raw  string
		n    float64
		want bool
	}{
		{`3`, 3, true}, {`3`, 4, false}, {`{"min":2}`, 2, true}, {`{"min":2}`, 1, false}, {`{"max":2}`, 3, false},
		{`{"eq":0}`, 0, true}, {`{"eq":0}`, 1, false}, {`{"min":1,"max":5}`, 6, false},
	} {
		var r Range
		if err := json.Unmarshal([]byte(x.raw), &r); err != nil || r.Holds(x.n) != x.want {
			t.Errorf("%s holds %v = %v, %v", x.raw, x.n, r.Holds(x.n), err)
		}
	}
	var r Range
	if err := json.Unmarshal([]byte(`{"least":1}`), &r); err == nil {
		t.Error("unknown word accepted")
	}
}

func TestHeaderForms(t *testing.T) {
	for raw, want := range map[string]Headers{
		`{"A":"1","B":["2","3"]}`:  {{"A", "1"}, {"B", "2"}, {"B", "3"}},
		`["A: 1","A:2",["B","3"]]`: {{"A", "1"}, {"A", "2"}, {"B", "3"}},
	} {
		var h Headers
		if err := json.Unmarshal([]byte(raw), &h); err != nil || len(h) != len(want) {
			t.Fatalf("%s: %v, %v", raw, h, err)
		}
		for i := range want {
			if h[i] != want[i] {
				t.Errorf("%s: %v, want %v", raw, h[i], want[i])
			}
		}
	}
	var h Headers
	if err := json.Unmarshal([]byte(`["no colon"]`), &h); err == nil {
		t.Error("a line without colon was accepted")
	}
}

func TestHeaderExpectation(t *testing.T) {
	number := func(n float64) *float64 { return &n }
	text := func(s string) *string { return &s }
	for _, x := range []struct {
		want   HeaderExpect
		values []string
		ok     bool
	}{
		{HeaderExpect{Int: true, Min: number(1), Max: number(6)}, []string{"3"}, true},
		{HeaderExpect{Int: true, Min: number(1)}, []string{"0"}, false},
		{HeaderExpect{Int: true, Max: number(6)}, []string{"7"}, false},
		{HeaderExpect{Int: true}, []string{"1.5"}, false},
		{HeaderExpect{Int: true}, nil, false},
		{HeaderExpect{Prefix: text("Basic")}, []string{"Basic realm"}, true},
		{HeaderExpect{Prefix: text("Basic")}, []string{"Bearer"}, false},
		{HeaderExpect{Equals: text("x")}, []string{"y"}, false},
		{HeaderExpect{Contains: text("store")}, []string{"no-store"}, true},
		{HeaderExpect{Absent: true}, []string{"y"}, false},
		{HeaderExpect{Absent: true}, nil, true},
	} {
		if got := x.want.check(x.values); (got == "") != x.ok {
			t.Errorf("%+v on %v: %q", x.want, x.values, got)
		}
	}
}

func TestMergeGoesIntoObjects(t *testing.T) {
	var change map[string]json.RawMessage
	if err := json.Unmarshal([]byte(`{"classes":{"a":{"permits":3}},"log_level":"debug"}`), &change); err != nil {
		t.Fatal(err)
	}
	got, err := mergeJSON([]byte(`{"profile":"small","classes":{"a":{"queue":1},"b":{"permits":2}}}`), change)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"classes":{"a":{"permits":3,"queue":1},"b":{"permits":2}},"log_level":"debug","profile":"small"}`
	if string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestPeak(t *testing.T) {
	at := time.Unix(100, 0)
	span := func(from, to int) call {
		return call{at: at.Add(time.Duration(from) * time.Second), end: at.Add(time.Duration(to) * time.Second)}
	}
	calls := []call{span(0, 2), span(1, 3), span(2, 4), span(9, 10)}
	if got := peak(calls, time.Time{}, time.Time{}); got != 2 {
		t.Errorf("peak %d, want 2: an end frees its place for a start of the same instant", got)
	}
	if got := peak(calls, at.Add(8*time.Second), time.Time{}); got != 1 {
		t.Errorf("peak after 8 s is %d, want 1", got)
	}
}
