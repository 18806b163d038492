package harness

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// preforkConfig is appended to the Apache's own: no more than 150 processes, Debian's default, and a page that says what
// they do.
const preforkConfig = `
MaxRequestWorkers 150
LoadModule status_module ` + apacheModules + `/mod_status.so
<Location /server-status>
  SetHandler server-status
  Require all granted
</Location>
`

// StartPrefork starts an Apache with the 150 workers that Debian gives it.
func StartPrefork(tb testing.TB) *Apache {
	tb.Helper()
	return startApache(tb, preforkConfig)
}

// Working is how many requests the workers of a [StartPrefork] are reading, running or answering, without the one that asks.
func (a *Apache) Working(tb testing.TB) int {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), "GET", "http://"+a.Addr+"/server-status?auto", nil)
	if err != nil {
		tb.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.SplitSeq(string(page), "\n") {
		if board, ok := strings.CutPrefix(line, "Scoreboard: "); ok {
			return strings.Count(board, "R") + strings.Count(board, "W") - 1
		}
	}
	tb.Fatalf("no scoreboard in %s: %s", resp.Status, tail(string(page), 500))
	return 0
}

// Finished counts the requests in the access log whose request line begins with start.
func (a *Apache) Finished(tb testing.TB, start string) (n int) {
	tb.Helper()
	for _, line := range a.AccessLog(tb) {
		fields := strings.SplitN(line, " ", 3)
		if len(fields) == 3 && strings.HasPrefix(fields[2], start) {
			if _, err := strconv.Atoi(fields[1]); err == nil {
				n++
			}
		}
	}
	return n
}

// UnfinishedFetch is the beginning of a POST git-upload-pack: its header and the first seven bytes of a body of 200.
func UnfinishedFetch(path string) string {
	return fmt.Sprintf("POST %s/git-upload-pack HTTP/1.1\r\nHost: git.test\r\nUser-Agent: git/2.39.5\r\n"+
		"Content-Type: application/x-git-upload-pack-request\r\nGit-Protocol: version=2\r\nContent-Length: 200\r\n\r\n0014com", path)
}
