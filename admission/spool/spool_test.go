package spool

import (
	"context"
	"fmt"
	"net/http"
	"testing"
)

func testConfig(t *testing.T) Config {
	t.Helper()
	return Config{Dir: t.TempDir(), Log: func(e Event) { t.Logf("event %+v", e) }}
}

func open(t *testing.T, c Config) *Spool {
	t.Helper()
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func testDelivery(repo string, n int) *Delivery {
	return &Delivery{
		Provider: "github", ID: fmt.Sprintf("%s-%d", repo, n), Event: "push", Repository: repo,
		Header: http.Header{"X-Github-Event": {"push"}, "Content-Type": {"application/json"}},
		Body:   fmt.Appendf(nil, `{"repository":%q,"n":%d}`, repo, n),
	}
}

func TestKeepSurvivesReopen(t *testing.T) {
	c := testConfig(t)
	s := open(t, c)
	for i := range 10 {
		if _, err := s.Keep(context.Background(), "/hook", testDelivery("a/b", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, c)
	items := s.List(Filter{})
	if len(items) != 10 {
		t.Fatalf("%d kept, want 10", len(items))
	}
	for i, it := range items {
		d, err := s.Show(it.ID, true)
		if err != nil || string(d.Body) != string(testDelivery("a/b", i).Body) {
			t.Fatalf("delivery %d: %q, %v", i, d.Body, err)
		}
	}
}
