package harness

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// OpenID is an identity provider (npm oidc-provider) and a relying party (Apache with mod_auth_openidc), both unchanged. The
// party signs users in for everything below /ci/; its callback and its back-channel logout are both at /oidc/callback, where
// a logout has the query logout=backchannel. Browsers and the provider reach the party at another address, which the test
// puts something in front of.
type OpenID struct {
	Issuer   string // URL
	Party    string // host:port of the relying party itself
	Client   string // client id
	Secret   string // the client's
	Apache   *Process
	Provider *Process
	dir      string
}

// StartOpenID starts both. external is the host and port at which the party is reached.
func StartOpenID(tb testing.TB, external string) *OpenID {
	tb.Helper()
	module := filepath.Join(Root(tb), "build", "oidc", "node_modules", "oidc-provider", "lib", "index.js")
	if _, err := os.Stat(module); err != nil {
		tb.Fatalf("missing %s: make deps installs it", module)
	}
	o := &OpenID{Party: Addr(tb), Client: "ci", Secret: "client-secret-0123456789abcdef0123456789abcdef", dir: TempDir(tb)}
	provider := Addr(tb)
	o.Issuer = "http://" + provider
	_, port, _ := strings.Cut(provider, ":")
	callback := "http://" + external + "/oidc/callback"
	cmd := exec.Command(Tool(tb, "node"), filepath.Join(Root(tb), "integration", "harness", "oidc", "op.mjs"))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "OIDC_MODULE=" + module, "PORT=" + port, "SECRET=" + o.Secret,
		"REDIRECT=" + callback, "LOGOUT=" + callback + "?logout=backchannel"}
	o.Provider = startProcess(tb, "identity provider", cmd)
	o.Provider.waitReady(tb, 60*time.Second, func() error { return answers(o.Issuer + "/.well-known/openid-configuration") })
	o.startParty(tb, callback)
	return o
}

func (o *OpenID) startParty(tb testing.TB, callback string) {
	tb.Helper()
	File(tb, apacheModules+"/mod_auth_openidc.so", "libapache2-mod-auth-openidc")
	pages := filepath.Join(o.dir, "htdocs", "ci")
	if err := os.MkdirAll(pages, 0o755); err != nil {
		tb.Fatal(err)
	}
	writeFile(tb, filepath.Join(pages, "page"), SignedIn, 0o644)
	user := ""
	if os.Geteuid() == 0 {
		user = "User www-data\nGroup www-data"
	}
	conf := filepath.Join(o.dir, "apache.conf")
	writeFile(tb, conf, strings.NewReplacer("@DIR@", o.dir, "@ADDR@", o.Party, "@MODULES@", apacheModules, "@USER@", user,
		"@ISSUER@", o.Issuer, "@CLIENT@", o.Client, "@SECRET@", o.Secret, "@CALLBACK@", callback).Replace(partyConfig), 0o644)
	o.Apache = startProcess(tb, "relying party", exec.Command(Tool(tb, "apache2"), "-f", conf, "-DFOREGROUND"))
	tb.Cleanup(func() {
		if tb.Failed() {
			b, _ := os.ReadFile(filepath.Join(o.dir, "error.log"))
			tb.Logf("---- relying party's error.log\n%s", tail(string(b), 4000))
		}
	})
	o.Apache.waitReady(tb, 30*time.Second, func() error { return answers("http://" + o.Party + "/") })
}

// SignedIn is the page below /ci/ that only a user who is signed in sees.
const SignedIn = "you are signed in\n"

const partyConfig = `ServerRoot "@DIR@"
ServerName localhost
Listen @ADDR@
PidFile "@DIR@/apache.pid"
ErrorLog "@DIR@/error.log"
LogLevel warn
LoadModule mpm_event_module @MODULES@/mod_mpm_event.so
LoadModule authn_core_module @MODULES@/mod_authn_core.so
LoadModule authz_core_module @MODULES@/mod_authz_core.so
LoadModule authz_user_module @MODULES@/mod_authz_user.so
LoadModule auth_openidc_module @MODULES@/mod_auth_openidc.so
@USER@
DocumentRoot "@DIR@/htdocs"
OIDCProviderMetadataURL @ISSUER@/.well-known/openid-configuration
OIDCProviderBackChannelLogoutSupported On
OIDCClientID @CLIENT@
OIDCClientSecret @SECRET@
OIDCRedirectURI @CALLBACK@
OIDCCryptoPassphrase a-passphrase-of-the-tests
OIDCScope "openid"
OIDCXForwardedHeaders X-Forwarded-Host X-Forwarded-Proto
<Directory "@DIR@/htdocs">
  Require all granted
</Directory>
<LocationMatch "^/(ci|oidc)/">
  AuthType openid-connect
  Require valid-user
</LocationMatch>
`

// ProviderRequest is one request that the provider answered.
type ProviderRequest struct{ Request, Agent, Event, Error string }

// Requests returns what the provider answered so far, and the outcomes of the logouts it sent.
func (o *OpenID) Requests() (all []ProviderRequest) {
	for line := range strings.Lines(o.Provider.Output()) {
		var r ProviderRequest
		if json.Unmarshal([]byte(line), &r) == nil {
			all = append(all, r)
		}
	}
	return all
}

// KeyFetches counts who fetched the provider's keys: the gateway (a Go program), and anybody else.
func (o *OpenID) KeyFetches() (gateway, others int) {
	for _, r := range o.Requests() {
		switch {
		case r.Request != "GET /jwks":
		case strings.Contains(r.Agent, "Go") || strings.Contains(strings.ToLower(r.Agent), "caddy") || strings.Contains(r.Agent, "gateway"):
			gateway++
		default:
			others++
		}
	}
	return gateway, others
}

// Logouts counts the logouts that the party took and those it did not.
func (o *OpenID) Logouts() (taken, failed int) {
	for _, r := range o.Requests() {
		switch r.Event {
		case "backchannel.success":
			taken++
		case "backchannel.error":
			failed++
		}
	}
	return taken, failed
}

// answerError is a status that a step of a login did not expect.
func answerError(step string, resp *http.Response) error {
	return fmt.Errorf("%s: %s for %s", step, resp.Status, resp.Request.URL.Path)
}
