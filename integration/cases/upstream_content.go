package cases

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"

	"github.com/coder/websocket"
)

// quiet swallows the servers' own log lines: aborted handlers are intended.
var quiet = log.New(io.Discard, "", 0)

// serviceContent is the content type and body that a forge would answer.
func serviceContent(r *http.Request, status int) (kind, body string) {
	path := r.URL.Path
	switch {
	case status == http.StatusUnauthorized:
		return "text/plain; charset=utf-8", "authentication required\n"
	case status >= 300:
		return "text/plain; charset=utf-8", http.StatusText(status) + "\n"
	case strings.HasSuffix(path, "/info/refs") && strings.HasPrefix(r.URL.Query().Get("service"), "git-"):
		return advertisement(r.URL.Query().Get("service"))
	case strings.HasSuffix(path, "/git-upload-pack"):
		return "application/x-git-upload-pack-result", "0008NAK\n0000"
	case strings.HasSuffix(path, "/git-receive-pack"):
		return "application/x-git-receive-pack-result", "000eunpack ok\n0000"
	case strings.Contains(path, "/info/lfs/objects/") && r.Method == http.MethodGet:
		return "application/octet-stream", "object"
	case strings.Contains(path, "/info/lfs/"):
		return "application/vnd.git-lfs+json", `{"transfer":"basic","objects":[]}`
	case strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
		return "application/grpc", "\x00\x00\x00\x00\x00"
	}
	return "text/plain; charset=utf-8", "ok\n"
}

// advertisement is a valid protocol v0 advertisement of one branch.
func advertisement(service string) (kind, body string) {
	const tip = "82804e1576ba9b2b972ffb401fb1184ed23e68b1"
	first := "# service=" + service + "\n"
	ref := tip + " refs/heads/main\x00report-status delete-refs ofs-delta agent=case/1\n"
	return "application/x-" + service + "-advertisement",
		fmt.Sprintf("%04x%s0000%04x%s0000", len(first)+4, first, len(ref)+4, ref)
}

// needsCredential reports whether the fake forge asks for one: only the two
// requests of a push.
func needsCredential(r *http.Request) bool {
	return strings.HasSuffix(r.URL.Path, "/git-receive-pack") || r.URL.Query().Get("service") == "git-receive-pack"
}

// credentialOf is what a request offers to prove who sends it.
func credentialOf(get func(string) string) string {
	for _, name := range []string{"Authorization", "Private-Token", "Cookie"} {
		if v := get(name); v != "" {
			return name + " " + v
		}
	}
	return ""
}

// defaultGit is the behaviour of the fake forge.
func (p *play) defaultGit() {
	if needsCredential(p.r) && !p.upstream.ledger.accepts(credentialOf(p.r.Header.Get)) {
		p.content(http.StatusUnauthorized)
		return
	}
	p.content(http.StatusOK)
}

// echoWebSocket answers every message with itself until the peer leaves.
func echoWebSocket(w http.ResponseWriter, r *http.Request) bool {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return false
	}
	defer conn.CloseNow()
	for {
		kind, msg, err := conn.Read(r.Context())
		if err != nil {
			return websocket.CloseStatus(err) != -1
		}
		if conn.Write(r.Context(), kind, msg) != nil {
			return false
		}
	}
}
