package caddymodule

import (
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-admission/gateway/internal/adminapi"
)

// Explaining knows the forge's pages and the operator's rules.
func TestExplainPages(t *testing.T) {
	raw, err := adapt(`{
	admin off
	auto_https off
	persist_config off
}
http://git.example.com:8080 {
	@bots header User-Agent *Bot*
	admission pages {
		forge gitea
		exempt /ping
		classify web @bots
	}
	reverse_proxy 127.0.0.1:1
}`)
	if err != nil {
		t.Fatal(err)
	}
	var cfg caddy.Config
	if err := caddy.StrictUnmarshalJSON(raw, &cfg); err != nil {
		t.Fatal(err)
	}
	ctx, err := caddy.ProvisionContext(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	const site = "http://git.example.com:8080"
	bot := map[string][]string{"User-Agent": {"A Bot"}}
	for name, c := range map[string]struct {
		q          adminapi.ExplainRequest
		class, why string
	}{
		"dear":          {adminapi.ExplainRequest{Method: "GET", URL: site + dear}, "web", "expensive page"},
		"dear, known":   {adminapi.ExplainRequest{Method: "GET", URL: site + dear, Proven: true}, "other", "not limited"},
		"events":        {adminapi.ExplainRequest{Method: "GET", URL: site + "/user/events"}, "stream", "long poll"},
		"cheap":         {adminapi.ExplainRequest{Method: "GET", URL: site + "/o/r"}, "other", "no git request"},
		"a bot's":       {adminapi.ExplainRequest{Method: "GET", URL: site + "/o/r", Header: bot}, "web", "a rule"},
		"a bot's git":   {adminapi.ExplainRequest{Method: "GET", URL: site + "/o/r.git/info/refs?service=git-upload-pack", Header: bot}, "web", "a rule"},
		"exempt":        {adminapi.ExplainRequest{Method: "GET", URL: site + "/ping", Header: bot}, "other", "exempt rule"},
		"git as before": {adminapi.ExplainRequest{Method: "GET", URL: site + "/o/r.git/info/refs?service=git-upload-pack"}, "discovery", "credential: none"},
	} {
		x, err := explain(ctx, c.q)
		if err != nil {
			t.Fatal(err)
		}
		if why := strings.Join(x.Why, "\n"); x.Class != c.class || !strings.Contains(why, c.why) || x.Budget == nil {
			t.Errorf("%s: %s, %s; want %s, %s", name, x.Class, why, c.class, c.why)
		}
	}
}
