package harness

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Users of every Apache the harness starts. Alice may push; bob may only read what is private.
const (
	Alice       = "alice"
	AliceSecret = "alice-secret-4f1c"
	Bob         = "bob"
	BobSecret   = "bob-secret-99a7"
)

// apacheModules is a directory of Debian's apache2-bin.
const apacheModules = "/usr/lib/apache2/modules"

// Apache is an unchanged Apache 2.4 (prefork and mod_cgi) that serves bare repositories with git-http-backend below /git/.
//
// A repository whose name begins with "private" needs a user for everything; any other is open to read and needs alice to push.
// Prefork is used because with the event MPM and mod_cgid most answers stall for the keep-alive time-out when the backend
// leaves without reading the body, which would hide what the gateway does. All processes a test needs are started at once:
// prefork otherwise adds them second by second, and clients would wait for that. Connections are kept for longer than Caddy
// keeps an idle one (2 min), so that no request meets one that the server is closing: Caddy answers 502 to a POST then.
type Apache struct {
	*Process
	Addr string // host:port
	Dir  string
}

// StartApache starts a server with no repository.
func StartApache(tb testing.TB) *Apache {
	tb.Helper()
	return startApache(tb, "")
}

// startApache starts a server with more configuration; @DIR@ in it is the server's directory.
func startApache(tb testing.TB, more string) *Apache {
	tb.Helper()
	server, htpasswd := Tool(tb, "apache2"), Tool(tb, "htpasswd")
	Tool(tb, "flock")
	dir := TempDir(tb)
	a := &Apache{Addr: Addr(tb), Dir: dir}
	for _, d := range []string{"repos", "htdocs"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	users := filepath.Join(dir, "htpasswd")
	// A bcrypt cost of 4 keeps the tests about the gateway; the harness is no measurement of password hashing.
	run(tb, dir, nil, htpasswd, "-bcBC", "4", users, Alice, AliceSecret)
	run(tb, dir, nil, htpasswd, "-bBC", "4", users, Bob, BobSecret)
	writeFile(tb, filepath.Join(dir, "pack-objects"), packObjectsHook, 0o755)
	conf := filepath.Join(dir, "apache.conf")
	writeFile(tb, conf, a.config(tb, more), 0o644)
	a.Process = startProcess(tb, "apache", exec.Command(server, "-f", conf, "-DFOREGROUND"))
	tb.Cleanup(func() {
		if tb.Failed() {
			for _, name := range []string{"error.log", "access.log"} {
				b, _ := os.ReadFile(filepath.Join(dir, name))
				tb.Logf("---- apache %s\n%s", name, tail(string(b), 4000))
			}
		}
	})
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	a.waitReady(tb, 30*time.Second, func() error {
		resp, err := client.Get("http://" + a.Addr + "/")
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
	return a
}

// packObjectsHook runs in place of git pack-objects in the repository's directory. While a test holds the lock file it waits,
// and shows with a file of its own that it does.
const packObjectsHook = `#!/bin/sh
if [ -e hold.lock ]; then
	: > held.$$
	flock -s hold.lock rm -f held.$$
fi
exec "$@"
`

func (a *Apache) config(tb testing.TB, more string) string {
	execPath := strings.TrimSpace(run(tb, a.Dir, nil, Tool(tb, "git"), "--exec-path"))
	backend := filepath.Join(execPath, "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		tb.Fatalf("missing git-http-backend: install package \"git\": %v", err)
	}
	user := ""
	if os.Geteuid() == 0 {
		user = "User www-data\nGroup www-data"
	}
	var modules strings.Builder
	for _, m := range []string{"mpm_prefork", "authn_core", "authn_file", "authz_core", "authz_user", "auth_basic", "alias", "env", "setenvif", "mime", "dir", "cgi"} {
		fmt.Fprintf(&modules, "LoadModule %s_module %s/mod_%s.so\n", m, apacheModules, m)
	}
	return strings.NewReplacer(
		"@DIR@", a.Dir, "@ADDR@", a.Addr, "@MODULES@", modules.String(), "@USER@", user,
		"@BACKEND@", backend, "@BACKENDDIR@", execPath,
	).Replace(apacheConfig + more)
}

const apacheConfig = `ServerRoot "@DIR@"
ServerName localhost
Listen @ADDR@
PidFile "@DIR@/apache.pid"
ErrorLog "@DIR@/error.log"
@MODULES@
LogFormat "%u %>s %r" plain
CustomLog "@DIR@/access.log" plain
@USER@
ServerLimit 200
MaxRequestWorkers 200
StartServers 80
MinSpareServers 8
MaxSpareServers 100
KeepAliveTimeout 130
TypesConfig /dev/null
DocumentRoot "@DIR@/htdocs"
<Directory />
  Require all denied
</Directory>
<Directory "@DIR@/htdocs">
  Require all granted
</Directory>
SetEnv GIT_PROJECT_ROOT @DIR@/repos
SetEnv GIT_HTTP_EXPORT_ALL
SetEnvIf Git-Protocol ".*" GIT_PROTOCOL=$0
SetEnv GIT_CONFIG_COUNT 2
SetEnv GIT_CONFIG_KEY_0 safe.directory
SetEnv GIT_CONFIG_VALUE_0 *
SetEnv GIT_CONFIG_KEY_1 uploadpack.packObjectsHook
SetEnv GIT_CONFIG_VALUE_1 @DIR@/pack-objects
ScriptAliasMatch "^/git/(.*/(HEAD|info/refs|objects/.*|git-(upload|receive)-pack))$" @BACKEND@/$1
<Directory "@BACKENDDIR@">
  Require all granted
</Directory>
<Location "/git/">
  AuthType Basic
  AuthName "git"
  AuthUserFile "@DIR@/htpasswd"
  <RequireAny>
    Require expr %{REQUEST_URI} !~ /git-receive-pack$/ && %{QUERY_STRING} !~ /service=git-receive-pack/
    Require user alice
  </RequireAny>
</Location>
<LocationMatch "^/git/private">
  <RequireAny>
    Require user alice
    <RequireAll>
      Require user bob
      Require expr %{REQUEST_URI} !~ /git-receive-pack$/ && %{QUERY_STRING} !~ /service=git-receive-pack/
    </RequireAll>
  </RequireAny>
</LocationMatch>
`

// AccessLog returns the lines of the access log: user, status and request line of every finished request.
func (a *Apache) AccessLog(tb testing.TB) []string {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join(a.Dir, "access.log"))
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}
