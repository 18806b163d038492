package harness

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Gitolite is Debian's gitolite3 behind an Apache: /git/NAME for users, /anon/NAME for everybody. It answers 200 to what it
// refuses, with an error packet. Alice may do everything in "public" and "private", bob may read "private", everybody may
// read "public".
type Gitolite struct {
	*Process
	Addr string
	Home string
}

// StartGitolite starts one with two empty repositories.
func StartGitolite(tb testing.TB) *Gitolite {
	tb.Helper()
	server, htpasswd := Tool(tb, "apache2"), Tool(tb, "htpasswd")
	Tool(tb, "gitolite")
	shell := File(tb, "/usr/share/gitolite3/gitolite-shell", "gitolite3")
	dir := TempDir(tb)
	g := &Gitolite{Addr: Addr(tb), Home: filepath.Join(dir, "home")}
	for _, d := range []string{g.Home, filepath.Join(dir, "htdocs")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	g.setUp(tb, dir)
	users := filepath.Join(dir, "htpasswd")
	run(tb, dir, nil, htpasswd, "-bcBC", "4", users, Alice, AliceSecret)
	run(tb, dir, nil, htpasswd, "-bBC", "4", users, Bob, BobSecret)
	user := ""
	if os.Geteuid() == 0 {
		user = "User www-data\nGroup www-data"
	}
	conf := filepath.Join(dir, "apache.conf")
	writeFile(tb, conf, strings.NewReplacer("@DIR@", dir, "@ADDR@", g.Addr, "@HOME@", g.Home, "@USER@", user,
		"@SHELL@", shell, "@MODULES@", apacheModules).Replace(gitoliteConfig), 0o644)
	g.Process = startProcess(tb, "gitolite's apache", exec.Command(server, "-f", conf, "-DFOREGROUND"))
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	g.waitReady(tb, 30*time.Second, func() error {
		resp, err := client.Get("http://" + g.Addr + "/")
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
	return g
}

// setUp makes the repositories, as the user that Apache runs as.
func (g *Gitolite) setUp(tb testing.TB, dir string) {
	if os.Geteuid() == 0 {
		run(tb, dir, nil, "chown", "www-data", g.Home)
	}
	g.as(tb, "gitolite", "setup", "-a", Alice)
	conf := filepath.Join(g.Home, ".gitolite", "conf", "gitolite.conf")
	writeFile(tb, conf, "repo gitolite-admin\n    RW+ = alice\nrepo public\n    RW+ = alice\n    R   = @all\nrepo private\n    RW+ = alice\n    R   = bob\n", 0o644)
	rc := filepath.Join(g.Home, ".gitolite.rc")
	b, err := os.ReadFile(rc)
	if err != nil {
		tb.Fatal(err)
	}
	writeFile(tb, rc, strings.Replace(string(b), "%RC = (", "%RC = (\n    HTTP_ANON_USER => 'anon',", 1), 0o600)
	if os.Geteuid() == 0 {
		run(tb, dir, nil, "chown", "www-data", conf, rc)
	}
	g.as(tb, "gitolite", "compile")
	g.as(tb, "gitolite", "trigger", "POST_COMPILE")
}

func (g *Gitolite) as(tb testing.TB, command ...string) {
	tb.Helper()
	if os.Geteuid() == 0 {
		command = append([]string{Tool(tb, "setpriv"), "--reuid=www-data", "--regid=www-data", "--clear-groups"}, command...)
	}
	run(tb, g.Home, []string{"HOME=" + g.Home, "PATH=" + os.Getenv("PATH")}, command[0], command[1:]...)
}

const gitoliteConfig = `ServerRoot "@DIR@"
ServerName localhost
Listen @ADDR@
PidFile "@DIR@/apache.pid"
ErrorLog "@DIR@/error.log"
LoadModule mpm_prefork_module @MODULES@/mod_mpm_prefork.so
LoadModule authn_core_module @MODULES@/mod_authn_core.so
LoadModule authn_file_module @MODULES@/mod_authn_file.so
LoadModule authz_core_module @MODULES@/mod_authz_core.so
LoadModule authz_user_module @MODULES@/mod_authz_user.so
LoadModule auth_basic_module @MODULES@/mod_auth_basic.so
LoadModule alias_module @MODULES@/mod_alias.so
LoadModule env_module @MODULES@/mod_env.so
LoadModule cgi_module @MODULES@/mod_cgi.so
@USER@
DocumentRoot "@DIR@/htdocs"
SetEnv GIT_PROJECT_ROOT @HOME@/repositories
SetEnv GIT_HTTP_EXPORT_ALL
SetEnv GITOLITE_HTTP_HOME @HOME@
ScriptAlias /git/ @SHELL@/
ScriptAlias /anon/ @SHELL@/
<Directory /usr/share/gitolite3>
  Require all granted
</Directory>
<Directory "@DIR@/htdocs">
  Require all granted
</Directory>
<Location /git/>
  AuthType Basic
  AuthName "git"
  AuthUserFile "@DIR@/htpasswd"
  Require valid-user
</Location>
`
