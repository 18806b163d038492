package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// uploadSize is what the refused uploads declare.
const uploadSize = 25 << 20

// uploads is how often each kind of upload is refused.
const uploads = 20

// TestUploadIsRefusedBeforeItsBody sends pushes of 25 MiB that have no place: every client sees the answer, whether it waits
// for 100-continue, sends at once or hardly sends at all, and the gateway does not take the body.
func TestUploadIsRefusedBeforeItsBody(t *testing.T) {
	s := newRefusing(t, "class anonymous {\n max 1\n}")
	s.occupy(t, s.apache.Repository(t, "slow.git"), 1, 1)
	head := func(header string) string {
		return fmt.Sprintf("POST /git/public.git/git-receive-pack HTTP/1.1\r\nHost: git.test\r\n%s\r\n"+
			"Content-Type: application/x-git-receive-pack-request\r\n%s\r\n", basicHeader("mallory", "guess"), header)
	}
	length := fmt.Sprintf("Content-Length: %d\r\n", uploadSize)
	kinds := []struct {
		name, head string
		upload     func(w io.Writer, sent *atomic.Int64) // nil: sends no body
		most       int64                                 // bytes of body that may have been taken
	}{
		{"Expect, nothing sent before the answer", head(length + "Expect: 100-continue\r\n"), nil, 0},
		{"sent at once", head(length), sendAll, 8 << 20},
		{"sent at once, chunked", head("Transfer-Encoding: chunked\r\n"), sendChunks, 8 << 20},
		{"hardly sent at all", head(length), func(w io.Writer, sent *atomic.Int64) { n, _ := w.Write([]byte("0")); sent.Add(int64(n)) }, 1},
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			for range uploads {
				sent := refusedUpload(t, s.addr, k.head, k.upload)
				if sent > k.most {
					t.Fatalf("%d bytes of body were taken, want at most %d", sent, k.most)
				}
			}
		})
	}
	t.Run("curl", func(t *testing.T) { refusedCurl(t, s) })
	if got := s.Class(t, "anonymous").InUse; got != 1 {
		t.Errorf("%d anonymous permits in use, want the 1 held", got)
	}
}

// refusedUpload sends one upload, wants the refusal within 10 seconds, and returns how much of the body went out.
func refusedUpload(t *testing.T, addr, head string, upload func(io.Writer, *atomic.Int64)) int64 {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	var sent atomic.Int64
	done := make(chan struct{})
	io.WriteString(conn, head)
	go func() {
		defer close(done)
		if upload != nil {
			upload(conn, &sent)
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("no answer to a refused upload: %v", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("answer cut: %v", err)
	}
	wantRefusal(t, resp, string(body), http.StatusServiceUnavailable)
	conn.Close()
	<-done
	return sent.Load()
}

var block = make([]byte, 64<<10)

func sendAll(w io.Writer, sent *atomic.Int64) {
	for range uploadSize / len(block) {
		n, err := w.Write(block)
		sent.Add(int64(n))
		if err != nil {
			return
		}
	}
}

func sendChunks(w io.Writer, sent *atomic.Int64) {
	for range uploadSize / len(block) {
		n, err := fmt.Fprintf(w, "%x\r\n%s\r\n", len(block), block)
		sent.Add(int64(n))
		if err != nil {
			return
		}
	}
	io.WriteString(w, "0\r\n\r\n")
}

// refusedCurl uploads with curl, with and without Expect, and wants the status each time.
func refusedCurl(t *testing.T, s *refusing) {
	curl := harness.Tool(t, "curl")
	file := filepath.Join(harness.TempDir(t), "body")
	harness.WriteRandom(t, file, uploadSize)
	for _, expect := range []string{"Expect: 100-continue", "Expect:"} {
		for range uploads {
			cmd := exec.Command(curl, "-q", "-s", "-S", "--noproxy", "*", "-m", "20", "-o", "/dev/null", "-w", "%{http_code}",
				"-X", "POST", "-T", file, "-H", expect, "-H", "Content-Type: application/x-git-receive-pack-request",
				"-u", "mallory:guess", "http://"+s.addr+"/git/public.git/git-receive-pack")
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.HasSuffix(string(out), "503") {
				t.Fatalf("curl with %q: %v %s", expect, err, out)
			}
		}
	}
}
