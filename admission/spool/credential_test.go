package spool

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSecretsStayOffTheDisk: what is a credential is on the disk only sealed
// or not at all, and every attempt still carries it.
func TestSecretsStayOffTheDisk(t *testing.T) {
	c := HookConfig{
		Keep: KeepAlways, SecretHeaders: []string{"x-custom-token"}, Headers: []string{"x-team"},
		Restore: map[string]string{"X-Gitlab-Token": "configured-secret"},
	}
	bubble(t, c, always(0), func(r *rig) {
		d := small("a", 1)
		d.Query = "access_token=query-secret"
		d.Header["Authorization"] = []string{"Basic authorization-secret"}
		d.Header["X-Gitlab-Token"] = []string{"configured-secret"}
		d.Header["X-Custom-Token"] = []string{"custom-secret"}
		d.Header["X-Hub-Signature-256"] = []string{"sha256=signature-secret"}
		d.Header["Cookie"] = []string{"cookie-secret"}
		d.Header["X-Team"] = []string{"blue"}
		a, _ := r.accept(d)
		shown, err := r.s.Show(a.ID, true)
		if err != nil || !shown.Sealed {
			t.Fatalf("%+v %v", shown, err)
		}
		text := fmt.Sprintf("%+v", shown)
		for name, f := range r.disk.names {
			text += name + string(f.data)
		}
		if i := strings.Index(text, "secret"); i >= 0 {
			t.Errorf("a secret is readable: …%q", text[max(0, i-40):i+10])
		}
		r.far.set(always(200))
		r.pass(time.Minute)
		h, query := r.far.last()
		want := http.Header{
			"Authorization": d.Header["Authorization"], "X-Gitlab-Token": d.Header["X-Gitlab-Token"],
			"X-Custom-Token": d.Header["X-Custom-Token"], "X-Team": d.Header["X-Team"], "Cookie": nil,
			"X-Hub-Signature-256": d.Header["X-Hub-Signature-256"],
			"X-Github-Event":      d.Header["X-Github-Event"],
		}
		for name, v := range want {
			if !slices.Equal(h[name], v) {
				t.Errorf("%s: %q, want %q", name, h[name], v)
			}
		}
		if query != d.Query {
			t.Errorf("query %q", query)
		}
	})
}

// TestLostKey: deliveries whose credentials cannot be opened are set aside;
// others are delivered. A damaged key is kept for an operator.
func TestLostKey(t *testing.T) {
	for what, lose := range map[string]func(map[string]*memFile){
		"missing": func(names map[string]*memFile) { delete(names, "/spool/key") },
		"damaged": func(names map[string]*memFile) { names["/spool/key"] = &memFile{data: []byte("odd")} },
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, HookConfig{Keep: KeepAlways}, always(0), func(r *rig) {
				d := small("a", 1)
				d.Query = "token=x"
				r.accept(d)
				r.accept(small("a", 2))
				if err := r.s.Close(); err != nil {
					t.Fatal(err)
				}
				lose(r.disk.names)
				r.far.set(always(200))
				r.open()
				r.pass(time.Minute)
				it := r.s.List(Filter{})
				if len(it) != 1 || it[0].Dead != string(DeadNoKey) || !slices.Equal(r.far.bodies(), []string{"a-2"}) {
					t.Errorf("%+v %v", it, r.far.bodies())
				}
				aside := r.disk.names["/spool/key.damaged"]
				if damaged := what == "damaged"; damaged != (aside != nil) || damaged != (r.s.Report().Damaged == 1) {
					t.Errorf("set aside %v, report %+v", aside != nil, r.s.Report())
				}
			})
		})
	}
}

// TestForeignKey: a key file that the configuration names is an error when it
// holds no key, and stays as it is.
func TestForeignKey(t *testing.T) {
	disk := newMemDisk()
	disk.names["/other"] = &memFile{data: []byte("no key")}
	c := memConfig(disk)
	c.KeyFile = "/other"
	if s, err := Open(c); err == nil {
		_ = s.Close()
		t.Error("opened")
	}
	if string(disk.names["/other"].data) != "no key" {
		t.Error("changed")
	}
}
