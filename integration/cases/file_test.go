package cases

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const developers = "testdata/developers.json"

func TestDeveloperFileLoads(t *testing.T) {
	list, err := Load(developers)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 46 {
		t.Errorf("%d cases, want 46", len(list))
	}
}

// TestUnknownWords puts one unknown word after another into a good case.
func TestUnknownWords(t *testing.T) {
	const good = `{"id":"X","kind":"k","setup":{"profile":"small"},
		"steps":[{"op":"req","name":"a","path":"/x","upstream":"hold","body":{"bytes":1}}],
		"expect":{"responses":{"a":{"status":[200],"counts":{"2xx":{"min":1}}}},"metrics":[{"name":"in_flight","class":"other","eq":0}]}}`
	if _, err := Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, edit := range []struct{ old, new, names string }{
		{`"kind"`, `"kinds"`, "kinds"},
		{`"profile":"small"`, `"profile":"large"`, "large"},
		{`"profile":"small"`, `"profile":"small","clases":{}`, "clases"},
		{`"profile":"small"`, `"profile":"small","classes":{"git_anno":{}}`, "git_anno"},
		{`"profile":"small"`, `"profile":"small","classes":{"git_anon":{"permit":1}}`, "permit"},
		{`"profile":"small"`, `"profile":"small","budgets":{"logn":{}}`, "logn"},
		{`"profile":"small"`, `"profile":"small","upstreams":{"git":"okay"}`, "okay"},
		{`"op":"req"`, `"op":"reqs"`, "reqs"},
		{`"op":"req"`, `"op":"req","cmd":"x"`, "cmd"},
		{`"path":"/x"`, `"path":"/x{{hexx}}"`, "hexx"},
		{`"path":"/x"`, `"path":"/x","proto":"spdy"`, "spdy"},
		{`"hold"`, `"hold:5"`, "hold:5"},
		{`"bytes":1`, `"bytes":1,"fill":"cheese"`, "cheese"},
		{`"bytes":1`, `"bytes":1,"size":1`, "size"},
		{`"status":[200]`, `"stauts":[200]`, "stauts"},
		{`"2xx"`, `"2xy"`, "2xy"},
		{`"min":1`, `"minimum":1`, "minimum"},
		{`{"a":{"status"`, `{"b":{"status"`, `"b"`},
		{`"in_flight"`, `"in_fligth"`, "in_fligth"},
		{`"class":"other"`, `"class":"others"`, "others"},
		{`"eq":0`, `"eq":0,"when":"end"`, "when"},
		{`"eq":0`, `"eq":0,"at":"never"`, "never"},
	} {
		text := strings.Replace(good, edit.old, edit.new, 1)
		if text == good {
			t.Fatalf("%s is not in the good case", edit.old)
		}
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), edit.names) {
			t.Errorf("%s: error %v does not name %s", edit.new, err, edit.names)
		}
	}
}

func TestCaseMustExpectSomething(t *testing.T) {
	_, err := Parse([]byte(`{"id":"X","steps":[{"op":"wait","ms":1}],"expect":{}}`))
	if err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("error %v", err)
	}
}

func TestLoadNamesEveryBadCase(t *testing.T) {
	path := t.TempDir() + "/f.json"
	one := `{"id":"%s","steps":[{"op":"dance"}],"expect":{}}`
	text := `{"cases":[` + fmt.Sprintf(one, "A") + "," + fmt.Sprintf(one, "B") + `]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path)
	for _, want := range []string{"case A", "case B", "dance"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %s", err, want)
		}
	}
}
