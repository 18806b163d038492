package integration

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// secrets are values that must not appear anywhere, by the name of what they are.
type secrets map[string]string

// new makes one.
func (s secrets) new(name string) string {
	s[name] = "s3-" + rand.Text()
	return s[name]
}

// spellings are what a secret looks like where somebody wrote it down after all.
func spellings(secret string) [][]byte {
	raw := []byte(secret)
	return [][]byte{raw, []byte(hex.EncodeToString(raw)), []byte(url.QueryEscape(secret)),
		[]byte(strings.TrimRight(base64.StdEncoding.EncodeToString(raw), "=")), []byte(base64.RawURLEncoding.EncodeToString(raw))}
}

// TestNoSecretIsWritten drives every kind of secret through a gateway that logs as caddyfile.example does, with the servers
// behind up and then down, deliveries kept and a reload refused, and then looks for each of them in all that was written: the
// gateway's output, its access log, its files, the metrics and every answer of the admin endpoint and the command line.
func TestNoSecretIsWritten(t *testing.T) {
	known := secrets{}
	p := startProvider(t)
	forge := httptest.NewServer(secretForge(known))
	t.Cleanup(forge.Close)
	addr := harness.Addr(t)
	access := filepath.Join(harness.TempDir(t), "access.log")
	spool := filepath.Join(harness.TempDir(t), "spool")
	config := secretConfig(t, known, addr, access, spool, p, forge.Listener.Addr().String())
	g := harness.StartGateway(t, config)
	requests := secretRequests(t, known, p)
	send := func() {
		for _, r := range requests {
			head, body, _ := strings.Cut(r, "\r\n\r\n")
			if _, err := sendRaw("", addr, head+"\r\nUser-Agent: marked-client\r\n\r\n", body); err != nil {
				t.Errorf("no answer to %.40q: %v", r, err)
			}
		}
	}
	send()
	forge.Close()
	send()
	written := map[string]string{
		"state":   g.Admin("GET", "/admission/state", "", ""),
		"metrics": g.Admin("GET", "/metrics", "", ""),
		"config":  g.Admin("GET", "/config/", "", ""),
		"explain": g.Admin("POST", "/admission/explain", "application/json", fmt.Sprintf(
			`{"method":"GET","url":"http://%s/team/r.git/info/refs?service=git-upload-pack&access_token=%s","header":{"Authorization":["Basic %s"]}}`,
			addr, known["token in a query"], known["git password, encoded"])),
	}
	broken := config
	broken.Sites = strings.Replace(config.Sites, "profile github", "profile gitlab-signed", 1) // its secret has another form
	if err := g.Reload(broken); err == nil {
		t.Error("a secret in the wrong form was loaded")
	} else {
		written["refused reload"] = err.Error()
	}
	for _, args := range [][]string{{"admission", "status"}, {"admission", "explain", "GET", "http://" + addr + "/hooks/github"}} {
		out, _ := g.Command(t, append(args, "--address", "unix/"+g.Socket)...)
		written[strings.Join(args, " ")] = out
	}
	g.Stop(t)
	written["output"] = g.Output()
	for _, dir := range []string{g.Dir, filepath.Dir(access), spool} {
		readAll(t, dir, written)
	}
	wantWritten(t, written, access)
	for where, text := range written {
		for name, secret := range known {
			for _, spelling := range spellings(secret) {
				if at := bytes.Index([]byte(text), spelling); at >= 0 {
					t.Errorf("%s holds the %s: …%.200q", where, name, text[max(0, at-100):])
					break
				}
			}
		}
	}
}

// wantWritten makes sure that the search can find something: the requests were logged, the errors too, and deliveries kept.
func wantWritten(t *testing.T, written map[string]string, access string) {
	t.Helper()
	for what, want := range map[string]bool{
		"the access log has the requests": strings.Count(written[access], "marked-client") > 30 && strings.Contains(written[access], "hidden"),
		"the output has the errors":       strings.Contains(written["output"], "http.log.error") && strings.Contains(written["output"], "marked-client"),
		"the explanation is one":          strings.Contains(written["explain"], `"class"`),
		"the state is one":                strings.Contains(written["state"], `"webhooks"`),
	} {
		if !want {
			t.Errorf("not so: %s", what)
		}
	}
	kept := 0
	for where, text := range written {
		if strings.Contains(where, "spool") && strings.Contains(text, "payload-that-is-kept") {
			kept++
		}
	}
	if kept == 0 {
		t.Error("no delivery was kept on disk")
	}
}

func readAll(t *testing.T, dir string, into map[string]string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		into[path] = string(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// secretForge answers like a forge and a CI server: it hands out cookies, sends logins to a provider, and asks for a password.
func secretForge(known secrets) http.Handler {
	session, state, password := known.new("session cookie of an answer"), known.new("state of a login"), known.new("git password")
	known["git password, encoded"] = base64.StdEncoding.EncodeToString([]byte("alice:" + password))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "session="+session+"; HttpOnly")
		_, given, _ := r.BasicAuth()
		switch {
		case r.URL.Path == "/login":
			http.Redirect(w, r, "http://id.invalid/auth?client_id=ci&state="+state, http.StatusFound)
		case r.URL.Path == "/login/callback":
			http.Redirect(w, r, "/?token="+session, http.StatusFound)
		case strings.Contains(r.URL.Path, ".git/") && given != password:
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
		case strings.Contains(r.URL.Path, ".git/"):
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			fmt.Fprint(w, harness.PktLine("# service=git-upload-pack\n")+"0000")
		}
	})
}

// secretConfig is a site with every kind of ingress and the two logs of caddyfile.example.
func secretConfig(t *testing.T, known secrets, addr, access, spool string, p *provider, upstream string) harness.Config {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(harness.Root(t), "caddyfile.example"))
	if err != nil {
		t.Fatal(err)
	}
	logs := blocksOf("\tlog {", string(raw))
	if len(logs) != 2 {
		t.Fatalf("%d logs in caddyfile.example, want the default one and an access log", len(logs))
	}
	signing := "whsec_" + base64.StdEncoding.EncodeToString([]byte(known.new("signing key of a hook")))
	known["signing key of a hook, as written"] = signing
	hook := func(path, profile string, keep bool, secret ...string) string {
		b := fmt.Sprintf("webhook %s {\n profile %s\n", path, profile)
		for _, s := range secret {
			b += " secret_file " + secretFile(t, s) + "\n"
		}
		if keep {
			b += fmt.Sprintf(" keep overflow\n deliver http://%s%s {\n  fresh_wait 200ms\n }\n", upstream, path)
		}
		return b + "}\n"
	}
	github, gitlab, basic := known.new("hook secret"), known.new("GitLab token"), "ci:"+known.new("Basic password of a hook")
	known["Basic credential of a hook"] = base64.StdEncoding.EncodeToString([]byte(basic))
	sites := "http://" + addr[strings.Index(addr, ":"):] + " {\n" + strings.Replace(logs[1], "/var/log/caddy/git.log", access, 1) + `
	admission {
		forge gitea
		login_start /login
		login_callback /login/callback
		logout /logout {
			issuer https://id.invalid {
				jwks ` + p.url + `
			}
		}
		logout /logout/any
		` + hook("/hooks/github", "github", false, github) + hook("/hooks/gitlab", "gitlab-token", false, gitlab) +
		hook("/hooks/azure", "azure-devops", false, basic) + hook("/hooks/standard", "standard-webhooks", false, signing) +
		hook("/hooks/woodpecker", "woodpecker-hook", false) +
		hook("/keep/github", "github", true, github) + hook("/keep/gitlab", "gitlab-token", true, gitlab, known.new("next GitLab token")) +
		hook("/keep/azure", "azure-devops", true, basic) + `
		spool ` + spool + `
	}
	reverse_proxy ` + upstream + "\n}"
	return harness.Config{Global: logs[0], Sites: sites}
}

// blocksOf returns the blocks of a Caddyfile that begin with head.
func blocksOf(head, text string) (all []string) {
	for {
		_, rest, found := strings.Cut(text, head)
		if !found {
			return all
		}
		depth, end := 1, 0
		for end = 0; depth > 0 && end < len(rest); end++ {
			depth += strings.Count(rest[end:end+1], "{") - strings.Count(rest[end:end+1], "}")
		}
		all = append(all, head+rest[:end])
		text = rest[end:]
	}
}

// secretRequests carry every secret to every place that takes one, and to some that do not.
func secretRequests(t *testing.T, known secrets, p *provider) (all []string) {
	get := func(target string, header ...string) {
		all = append(all, "GET "+target+" HTTP/1.1\r\nHost: forge.example.test\r\n"+strings.Join(append(header, ""), "\r\n")+"\r\n")
	}
	post := func(target, kind, body string, header ...string) {
		header = append(header, "Content-Type: "+kind, fmt.Sprintf("Content-Length: %d", len(body)))
		all = append(all, "POST "+target+" HTTP/1.1\r\nHost: forge.example.test\r\n"+strings.Join(header, "\r\n")+"\r\n\r\n"+body)
	}
	const json, form = "application/json", "application/x-www-form-urlencoded"
	body := `{"project":{"path_with_namespace":"team/r"},"note":"payload-that-is-kept"}`
	jwt := known.new("Woodpecker token") + "." + known.new("Woodpecker claims") + "." + known.new("Woodpecker signature")
	wrong := known.new("mistyped token")
	for _, at := range []string{"/hooks", "/keep"} {
		post(at+"/github?token="+known.new("token in the query of a delivery"), json, body, "X-GitHub-Event: push", "X-GitHub-Delivery: 72d3162e-cc78-11e3-81ab-4c9367dc0958",
			"X-Hub-Signature-256: sha256="+sign256(known["hook secret"], body))
		for _, token := range []string{known["GitLab token"], known["next GitLab token"], wrong} {
			post(at+"/gitlab", json, body, "X-Gitlab-Event: Push Hook", "X-Gitlab-Token: "+token,
				"X-Gitlab-Event-UUID: 9cebe914-4827-408f-b014-cfa23a47a35f", "X-Gitlab-Webhook-UUID: 3c5c0404-c866-44bc-a5f6-452bb1bfc76e")
		}
		post(at+"/azure", json, body, "Authorization: Basic "+known["Basic credential of a hook"])
		post(at+"/azure", json, body, "Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte("ci:"+wrong)))
	}
	post("/hooks/woodpecker?access_token="+jwt, json, body, "X-GitHub-Event: push")
	post("/Hooks/woodpecker?access_token="+jwt, json, body, "X-GitHub-Event: push")
	post("/hooks/github?token="+wrong, json, body, "X-Gitlab-Token: "+wrong)
	now := fmt.Sprint(time.Now().Unix())
	post("/hooks/standard", json, body, "webhook-id: msg_1", "webhook-timestamp: "+now, "webhook-signature: v1,"+base64.StdEncoding.EncodeToString(make([]byte, 32)))

	events := `"events":{"http://schemas.openid.net/event/backchannel-logout":{}}`
	claims := fmt.Sprintf(`{"iss":"https://id.invalid","aud":"ci","sub":"u","sid":"s","jti":%q,"iat":%s,%s}`, known.new("token id of a logout"), now, events)
	signed := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"r1"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	genuine := signed + "." + p.sign(t, "RS256", signed)
	known["logout token"] = genuine
	for _, token := range []string{genuine, forgedToken(`{"alg":"RS256","kid":"r1"}`, "https://id.invalid", "ci"), "not-a-token-" + wrong} {
		post("/logout", form, "logout_token="+token)
		post("/logout/any", form, "logout_token="+token)
		post("/logout?logout_token="+token, form, "logout_token="+token)
	}
	get("/login", "Cookie: before="+known.new("cookie before a login"))
	code, cookie := known.new("code of a login"), known.new("session cookie")
	for _, query := range []string{"code=" + code + "&state=" + known["state of a login"], "code=" + code + "&state=" + known.new("forged state")} {
		get("/login/callback?"+query, "Cookie: session="+cookie)
		get("/", "Referer: http://forge.example.test/login/callback?"+query, "Cookie: session="+cookie)
	}
	post("/login/callback", form, "code="+code+"&state="+known["state of a login"])
	token, bearer := known.new("token in a query"), known.new("bearer token")
	for _, target := range []string{"/team/r.git/info/refs?service=git-upload-pack", "/team/r.git/info/refs?service=git-receive-pack", "/api/v1/user"} {
		for _, header := range []string{"Authorization: Basic " + known["git password, encoded"], "Authorization: Bearer " + bearer,
			"Authorization: token " + bearer, "Private-Token: " + bearer, "Job-Token: " + bearer, "Cookie: i_like_gitea=" + cookie} {
			get(target, header)
		}
		separator := "?"
		if strings.Contains(target, "?") {
			separator = "&"
		}
		get(target + separator + "access_token=" + token + "&private_token=" + token)
		get(target + separator + "token=" + token + "&job_token=" + token)
	}
	return all
}
