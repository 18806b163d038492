package spool

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestConfigValidate(t *testing.T) {
	for _, test := range []struct {
		json string
		want []string // parts of the error; none = valid
	}{
		{`{"dir":"/x"}`, nil},
		{`{"dir":"/x","max_bytes":2147483648,"max_age":"72h","max_count":5,"repository_share":1}`, nil},
		{`{}`, []string{"dir is missing"}},
		{`{"dir":"x","max_bytes":5,"max_age":"1ms","max_count":-1,"repository_share":2,"segment_bytes":-1}`,
			[]string{"absolute", "max_bytes 5", "max_age 1ms", "max_count -1", "repository_share 2", "segment_bytes"}},
	} {
		var c Config
		if err := json.Unmarshal([]byte(test.json), &c); err != nil {
			t.Fatal(err)
		}
		wantError(t, test.json, c.Validate(), test.want)
	}
}

func TestHookConfigValidate(t *testing.T) {
	for _, test := range []struct {
		json string
		want []string
	}{
		{`{"name":"/h","deliver":"http://127.0.0.1:8010/hooks/ci"}`, nil},
		{`{"name":"/h","deliver":"https://ci/x?y=1","keep":"always","permits":8,"timeout":"30s","status":{"404":"again","5xx":"never"}}`, nil},
		{`{"name":"","deliver":"ftp://x"}`, []string{"name is empty", "not an http"}},
		{`{"name":"/h","deliver":"http://user:secret@x/"}`, []string{"must not hold a user"}},
		{`{"name":"/h","deliver":"http://x","keep":"maybe","permits":65,"tries":-1,"try_for":-5,"status":{"4x":"again","200":"x"},"tls":{"cert_file":"a"}}`,
			[]string{`keep "maybe"`, "permits 65", "tries -1", "negative", `"4x"`, `"200"`, "cert_file and key_file"}},
	} {
		var c HookConfig
		if err := json.Unmarshal([]byte(test.json), &c); err != nil {
			t.Fatal(err)
		}
		wantError(t, test.json, c.Validate(), test.want)
		if err := c.Validate(); err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error holds the secret: %v", err)
		}
	}
}

func wantError(t *testing.T, what string, err error, parts []string) {
	t.Helper()
	if (err == nil) != (parts == nil) {
		t.Errorf("%s: %v", what, err)
	}
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v lacks %q", what, err, part)
		}
	}
}

func TestDurationJSON(t *testing.T) {
	var d Duration
	for in, want := range map[string]time.Duration{`"90s"`: 90 * time.Second, `1000`: time.Microsecond} {
		if err := json.Unmarshal([]byte(in), &d); err != nil || time.Duration(d) != want {
			t.Errorf("%s: %v %v", in, d, err)
		}
	}
	for _, in := range []string{`"x"`, `{}`, `""`} {
		if json.Unmarshal([]byte(in), &d) == nil {
			t.Errorf("%s was accepted", in)
		}
	}
	if b, err := json.Marshal(Duration(time.Minute)); err != nil || string(b) != `"1m0s"` {
		t.Errorf("%s %v", b, err)
	}
}
