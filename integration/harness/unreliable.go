package harness

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// DoHeader tells an [Unreliable] upstream how to answer: one of the Do constants.
const DoHeader = "X-Do"

// What an unreliable upstream can be told to do.
const (
	DoAnswer   = "answer"    // read the body, answer 200
	DoStream   = "stream"    // answer 200 and send 4 MiB in pieces
	DoHang     = "hang"      // never answer
	DoDie      = "die"       // be reset before the answer
	DoDieMid   = "die-mid"   // be reset in the middle of the answer
	DoCloseMid = "close-mid" // end the connection in the middle of an answer with a declared length
)

// Unreliable is an upstream that looks like a git server and breaks off as it is told. Discovery and LFS batch need the
// password "right" and answer 401 without one, so that credentials can be proven.
type Unreliable struct{ Addr string }

// StartUnreliable starts an upstream that keeps no connection open.
func StartUnreliable(tb testing.TB) *Unreliable {
	tb.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(unreliable))
	server.Config.SetKeepAlivesEnabled(false)
	server.Start()
	tb.Cleanup(server.Close)
	return &Unreliable{Addr: server.Listener.Addr().String()}
}

func unreliable(w http.ResponseWriter, r *http.Request) {
	discovery, batch := strings.HasSuffix(r.URL.Path, "/info/refs"), strings.HasSuffix(r.URL.Path, "/objects/batch")
	service := strings.TrimPrefix(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:], "git-")
	if discovery {
		service = strings.TrimPrefix(r.URL.Query().Get("service"), "git-")
		w.Header().Set("Content-Type", "application/x-git-"+service+"-advertisement")
	} else {
		w.Header().Set("Content-Type", "application/x-git-"+service+"-result")
	}
	if batch {
		w.Header().Set("Content-Type", lfsMediaType)
	}
	if _, secret, _ := r.BasicAuth(); (discovery || batch) && secret != "right" {
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	switch do := r.Header.Get(DoHeader); do {
	case DoHang:
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	case DoDie, DoDieMid, DoCloseMid:
		breakOff(w, do)
	case DoStream:
		piece := make([]byte, 64<<10)
		for range 64 {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	default:
		io.Copy(io.Discard, r.Body)
		switch {
		case batch:
			io.WriteString(w, `{"objects":[]}`)
		case discovery:
			io.WriteString(w, PktLine("# service=git-"+service+"\n")+"0000"+PktLine(strings.Repeat("0", 40)+" capabilities^{}\x00\n")+"0000")
		}
	}
}

// breakOff ends the connection instead of answering, or in the middle of an answer.
func breakOff(w http.ResponseWriter, do string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer conn.Close()
	if do != DoDie {
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-result\r\nContent-Length: 1000000\r\n\r\n%s", strings.Repeat("x", 5000))
	}
	if tcp, ok := conn.(*net.TCPConn); ok && do != DoCloseMid {
		tcp.SetLinger(0) // a reset, as from a killed process
	}
}
