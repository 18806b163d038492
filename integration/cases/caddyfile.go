package cases

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The two upstreams every case has.
const (
	gitUpstream = "git"
	ciUpstream  = "ci"
)

// productClasses maps a neutral class to the product's.
var productClasses = map[string][]string{
	"git_anon": {"anonymous"}, "git_read": {"read"}, "git_push": {"push"}, "candidate": {"candidate"}, "discovery": {"discovery"},
	"webhook": {"webhook"}, "logout": {"logout"}, "login": {"login_start", "login_callback"},
	"stream": {"stream"}, "other": {"other"}, "lfs": {"lfs"}, "web": {"web"},
}

// neutralClass is the neutral name of a product class.
func neutralClass(product string) string {
	for neutral, names := range productClasses {
		if slices.Contains(names, product) {
			return neutral
		}
	}
	return product
}

// Switches turn mechanisms off, so that tests of the runner can see a case
// fail. The zero value leaves everything on.
type Switches struct {
	NoAdmission bool // the directive is left out
	DryRun      bool // decides and refuses nothing
	NoReserve   bool // no class has a part of its own, and push no permit when the total is taken
	NoBuckets   bool // no budget of any kind
	NoCallerCap bool // no limit per caller
	NoSpool     bool // nothing is kept
	NoWait      bool // nothing waits
	NoVerify    bool // hooks pass unchecked
	NoExempt    bool // probes are ordinary pages
	AnyProxy    bool // every peer may say who the client is
}

// adapter writes the Caddyfile for a case. It is the only place that knows
// the product's directives.
type adapter struct {
	setup     Setup
	steps     []Step
	gateway   *gateway
	tokens    *tokens
	addresses map[string]string // upstream name → host:port
	portal    string            // address of the login portal, "" for none
	off       Switches

	unrelated string // address of one more site, "" for none
	invalid   bool   // a setting no version of the product knows

	lines []string
	err   error
}

func (a *adapter) add(format string, args ...any) {
	a.lines = append(a.lines, fmt.Sprintf(format, args...))
}

// fail notes the first word that cannot be said in the product's configuration.
func (a *adapter) fail(format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf("setup: "+format, args...)
	}
}

// write returns the whole Caddyfile.
func (a *adapter) write() (string, error) {
	a.lines, a.err = nil, nil
	a.options()
	a.site("http://:"+port(a.gateway.plain), nil, a.handlers)
	if a.needsTLS() {
		cert, key, err := writeCertificate(a.gateway.dir)
		if err != nil {
			return "", err
		}
		a.site("https://:"+port(a.gateway.secure), []string{"tls " + cert + " " + key}, a.handlers)
	}
	if a.unrelated != "" {
		a.add("http://:%s {\n\tbind 127.0.0.1\n\trespond \"unrelated\"\n}", port(a.unrelated))
	}
	return strings.Join(a.lines, "\n") + "\n", a.err
}

func port(addr string) string { return addr[strings.LastIndex(addr, ":")+1:] }

// options writes Caddy's global options.
func (a *adapter) options() {
	a.add("{")
	a.add("\tadmin %s\n\tauto_https off\n\tpersist_config off\n\tmetrics", a.gateway.admin)
	grace := "1s"
	if s := a.setup.Server; s != nil && s.GracePeriod != "" {
		grace = s.GracePeriod
	}
	a.add("\tgrace_period %s\n\tstorage file_system %s", grace, a.gateway.file("storage"))
	level := "INFO"
	if a.setup.LogLevel != "" {
		level = strings.ToUpper(a.setup.LogLevel)
	}
	a.add("\tlog default {\n\t\toutput stderr\n\t\tformat json\n\t\tlevel %s\n\t}", level)
	if slices.Contains(a.setup.Before, "encode gzip") && !a.off.NoAdmission {
		a.add("\torder encode before admission")
	}
	a.servers()
	a.add("}")
}

func (a *adapter) servers() {
	protocols := []string{"h1", "h2", "h2c", "h3"}
	if len(a.setup.Proto) > 0 {
		protocols = a.setup.Proto
	}
	a.add("\tservers {\n\t\tprotocols %s", strings.Join(protocols, " "))
	trusted := []string{"127.0.0.1/32"}
	if c := a.setup.ClientIP; c != nil {
		trusted = c.TrustedProxies
	}
	if a.off.AnyProxy {
		trusted = []string{"0.0.0.0/0", "::/0"}
	}
	if len(trusted) > 0 {
		a.add("\t\ttrusted_proxies static %s", strings.Join(trusted, " "))
		if !a.off.AnyProxy {
			a.add("\t\ttrusted_proxies_strict")
		}
	}
	if s := a.setup.Server; s != nil && len(s.Timeouts) > 0 {
		a.add("\t\ttimeouts {")
		for _, name := range sortedKeys(s.Timeouts) {
			word, ok := map[string]string{"read_idle": "read_body_idle", "write_idle": "write_idle", "read_body": "read_body",
				"read_header": "read_header", "write": "write", "idle": "idle"}[name]
			if !ok {
				a.fail("unknown server timeout %q", name)
			}
			a.add("\t\t\t%s %s", word, s.Timeouts[name])
		}
		a.add("\t\t}")
	}
	a.add("\t}")
}

// site writes one site block around handlers.
func (a *adapter) site(address string, head []string, handlers func()) {
	a.add("%s {\n\tbind 127.0.0.1", address)
	for _, line := range head {
		a.add("\t%s", line)
	}
	if s := a.setup.Server; (s != nil && s.AccessLog) || slices.Contains(a.setup.Before, "log") {
		a.add("\tlog {\n\t\toutput file %s\n\t}", a.gateway.file("access.log"))
	}
	for _, h := range a.setup.Before {
		switch h {
		case "encode gzip":
			a.add("\tencode gzip")
		case "log": // above
		default:
			a.fail("unknown handlers_before %q", h)
		}
	}
	handlers()
	a.add("}")
}

func (a *adapter) handlers() {
	if !a.off.NoAdmission {
		a.admission()
	}
	a.front()
	a.proxies()
}

// front puts a login portal before everything that is no git request.
func (a *adapter) front() {
	f := a.setup.Front
	if f == nil {
		return
	}
	if f.ForwardAuth != "redirect302 unless cookie" {
		a.fail("unknown forward_auth %q", f.ForwardAuth)
		return
	}
	matcher := ""
	if !a.off.NoAdmission {
		a.add("\t@page `{http.admission.class} == \"other\" || {http.admission.class} == \"web\"`")
		matcher = "@page "
	}
	a.add("\tforward_auth %s%s {\n\t\turi /verify\n\t}", matcher, a.portal)
}

// ciPaths are the paths of the CI server; everything else is the forge's.
const ciPaths = "/hooks/* /ci/* /wsagents/* /proto.* /generic-webhook-trigger/* /api/hook /api/hook/* /repos/*"

// proxies routes to the upstreams, the more special first.
func (a *adapter) proxies() {
	a.add("\t@grpc header Content-Type application/grpc*\n\t@ci path %s", ciPaths)
	a.add("\troute {")
	a.proxy("@grpc", "h2c://"+a.addresses[ciUpstream])
	a.proxy("@ci", a.addresses[ciUpstream])
	for _, name := range sortedKeys(a.addresses) {
		if name != gitUpstream && name != ciUpstream {
			a.proxy("/"+name+"/*", a.addresses[name])
		}
	}
	a.proxy("", a.addresses[gitUpstream])
	a.add("\t}")
}

func (a *adapter) proxy(matcher, to string) {
	a.add("\t\treverse_proxy %s {", strings.TrimSpace(matcher+" "+to))
	a.add("\t\t\theader_up %s {http.admission.class}\n\t\t\theader_up %s {http.admission.repository}", classHeader, repositoryHeader)
	if s := a.setup.Server; s != nil && s.StreamCloseDelay != "" {
		a.add("\t\t\tstream_close_delay %s", s.StreamCloseDelay)
	}
	a.add("\t\t}")
}

// needsTLS reports whether a step talks HTTP/2 or HTTP/3 over TLS.
func (a *adapter) needsTLS() bool {
	return anyStep(a.steps, func(s *Step) bool {
		return s.Proto == "h2" || s.Proto == "h3" || s.Op == "h3_resume" || ((s.Op == "h2_reset_flood" || s.Op == "h2_continuation_flood") && s.Proto == "h2")
	})
}

func anyStep(steps []Step, match func(*Step) bool) bool {
	return slices.ContainsFunc(steps, func(s Step) bool { return match(&s) || anyStep(s.Steps, match) })
}

// duration writes milliseconds as a Caddyfile duration.
func duration(ms float64) string { return millis(ms).Round(time.Millisecond).String() }

// secretFile stores a secret where the gateway reads it.
func (a *adapter) secretFile(name string) string {
	path := filepath.Join(a.gateway.dir, "secret-"+name)
	if err := os.WriteFile(path, []byte(a.tokens.secret(name)), 0o600); err != nil {
		a.fail("secret %s: %v", name, err)
	}
	return path
}
