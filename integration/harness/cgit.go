package harness

import (
	"path/filepath"
	"strings"
	"testing"
)

// cgitConfig is appended to the Apache's own.
const cgitConfig = `
ScriptAlias /cgit/ /usr/lib/cgit/cgit.cgi/
<Directory /usr/lib/cgit>
  Require all granted
  SetEnv CGIT_CONFIG @DIR@/cgitrc
</Directory>
`

// StartCgit starts an Apache that also shows its repositories with Debian's cgit below /cgit/, without a cache.
func StartCgit(tb testing.TB) *Apache {
	tb.Helper()
	File(tb, "/usr/lib/cgit/cgit.cgi", "cgit")
	a := startApache(tb, cgitConfig)
	writeFile(tb, filepath.Join(a.Dir, "cgitrc"), strings.ReplaceAll(`cache-size=0
enable-http-clone=0
enable-blame=1
snapshots=tar.gz
scan-path=@DIR@/repos/
`, "@DIR@", a.Dir), 0o644)
	return a
}
