package spool

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	recoveryDoc  = "../../docs/recovery.md"
	recoveryJSON = "../../docs/recovery.json"
)

// TestRecoveryDocs: docs/recovery.md and docs/recovery.json say what the
// table says. With -update they are written.
func TestRecoveryDocs(t *testing.T) {
	machine, err := ContractJSON()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{recoveryDoc: contractDoc(t), recoveryJSON: machine} {
		if *update {
			if err := os.WriteFile(name, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(name)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s does not say what the code says: go test ./admission/spool -run TestRecoveryDocs -update (%v)", name, err)
		}
	}
}

// TestContractIsWhole: every provider and way has a status, somebody or
// nobody named, and a way back where somebody is.
func TestContractIsWhole(t *testing.T) {
	rows := Contract()
	if len(rows) != len(Providers())*len(Ways()) {
		t.Errorf("%d rows", len(rows))
	}
	for _, r := range rows {
		if r.Status == "" || r.How == "" || !slices.Contains([]Who{BySender, ByScript, ByOperator, ByOwner, ByGateway, ByNobody}, r.Who) {
			t.Errorf("%+v", r)
		}
		if r.Who == ByScript && r.API == "" {
			t.Errorf("%s %s: a script needs an API", r.Provider, r.Way)
		}
		if r.Who == BySender && r.Way != WayRefused && !strings.HasPrefix(r.Status, "50") {
			t.Errorf("%s %s: no sender repeats after %s", r.Provider, r.Way, r.Status)
		}
	}
	text, err := os.ReadFile("../webhook/testdata/profiles.json") // every profile the gateway ships
	if err != nil {
		t.Fatal(err)
	}
	var shipped struct {
		Profiles map[string]json.RawMessage `json:"profiles"`
	}
	if err := json.Unmarshal(text, &shipped); err != nil || len(shipped.Profiles) < 10 {
		t.Fatal(err, len(shipped.Profiles))
	}
	for name := range shipped.Profiles {
		if _, ok := senders[name]; !ok {
			t.Errorf("profile %s has no row", name)
		}
	}
}

// TestContractFacts holds what the senders' documentation says.
func TestContractFacts(t *testing.T) {
	for _, test := range []struct {
		provider string
		way      Way
		who      Who
	}{
		{"github", WayOverload, ByScript},
		{"gitlab-token", WaySpoolFull, ByScript},
		{"gitea", WaySpoolFull, ByOperator},
		{"forgejo", WayDeadline, ByOperator},
		{"gogs", WayOverload, ByOperator},
		{"bitbucket-cloud", WayOverload, BySender},
		{"bitbucket-cloud", WayDeadline, ByOperator}, // a time-out is not in its 5xx class
		{"azure-devops", WayOverload, BySender},
		{"azure-devops", WayDeadline, ByOperator},
		{"gitea", WaySignature, ByOwner},
		{"github", WayTooLarge, ByNobody},
		{"github", WayDead, ByGateway},
		{"never heard of", WayOverload, ByOperator},
	} {
		if r := Recovery(test.provider, test.way); r.Who != test.who {
			t.Errorf("%s %s: %s, want %s", test.provider, test.way, r.Who, test.who)
		}
	}
}

// TestRefusals: what is remembered is bounded, and strangers push out no
// verified one.
func TestRefusals(t *testing.T) {
	r := NewRefusals()
	at := func(i int) time.Time { return epoch.Add(time.Duration(i) * time.Second) }
	for i := range 3 {
		r.Record(Refused{At: at(i), Provider: "gitea", Way: WaySpoolFull, Verified: true, Delivery: "real", Repository: "a/b"})
	}
	for i := range 5000 {
		r.Record(Refused{At: at(10 + i), Provider: "github", Way: WaySignature, Delivery: strings.Repeat("x", 5000), Repository: "forged"})
	}
	list, counts := r.List()
	if len(list) != 3+othersBound || counts[WaySignature] != 5000 || counts[WaySpoolFull] != 3 {
		t.Fatalf("%d %v", len(list), counts)
	}
	if first := list[0]; first.At != at(5009) || len(first.Delivery) > factBound || first.Repository != "" || first.Recoverer.Who != ByOwner {
		t.Errorf("%+v", first)
	}
	if last := list[len(list)-1]; last.Delivery != "real" || last.Recoverer.Who != ByOperator || last.Recoverer.How == "" {
		t.Errorf("%+v", last)
	}
	if !slices.IsSortedFunc(list, func(a, b Refused) int { return b.At.Compare(a.At) }) {
		t.Error("not newest first")
	}
}
