package harness

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Loopback returns the n-th loopback address for clients that must look like different callers: every address of 127.0.0.0/8
// reaches this machine. Neighbours in n share a /24 in runs of 250.
func Loopback(n int) string { return fmt.Sprintf("127.%d.%d.%d", 10+n/62500, n/250%250, 1+n%250) }

// dialFrom connects to addr from the loopback address source, "" for any. On a machine that is busy for seconds the kernel
// drops what the gateway has no time to accept, and tries again ever more seldom.
func dialFrom(source, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: time.Minute}
	if source != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(source)}
	}
	return d.Dial("tcp", addr)
}

// FetchBody is a complete protocol version 2 fetch of one object, the last request of a clone. It asks for no progress, so
// that a server with nobody to write to does not notice before the pack is ready.
func FetchBody(object string) string {
	return PktLine("command=fetch") + "0001" + PktLine("no-progress\n") + PktLine("want "+object+"\n") + PktLine("done\n") + "0000"
}

// PktLine encodes one line of git's packet format.
func PktLine(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }

// FetchRequest is the bytes of an anonymous POST git-upload-pack for the repository at path, with more header lines if needed.
func FetchRequest(path, object string, header ...string) string {
	body := FetchBody(object)
	lines := ""
	for _, h := range header {
		lines += h + "\r\n"
	}
	return "POST " + path + "/git-upload-pack HTTP/1.1\r\nHost: git.test\r\nUser-Agent: git/2.39.5\r\n" +
		"Content-Type: application/x-git-upload-pack-request\r\nAccept: application/x-git-upload-pack-result\r\nGit-Protocol: version=2\r\n" +
		lines + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
}

// Holder is a client whose request has been sent whole and whose answer it does not finish reading.
type Holder struct {
	conn   net.Conn
	reader *bufio.Reader
}

// Send sends a raw request from the loopback address source and returns without waiting for the answer.
func Send(tb testing.TB, source, addr, request string) *Holder {
	tb.Helper()
	c, err := dialFrom(source, addr)
	if err != nil {
		tb.Fatal(err)
	}
	h := &Holder{conn: c, reader: bufio.NewReader(c)}
	tb.Cleanup(h.Close)
	if _, err := io.WriteString(c, request); err != nil {
		tb.Fatal(err)
	}
	return h
}

// Hold sends an anonymous fetch from the loopback address source and returns without waiting for the answer.
func Hold(tb testing.TB, source, addr, path, object string) *Holder {
	tb.Helper()
	return Send(tb, source, addr, FetchRequest(path, object))
}

// Answer reads the answer to its end and returns it with its body.
func (h *Holder) Answer(limit time.Duration) (*http.Response, string, error) {
	h.conn.SetReadDeadline(time.Now().Add(limit))
	resp, err := http.ReadResponse(h.reader, nil)
	if err != nil {
		return nil, "", err
	}
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

// Close hangs up.
func (h *Holder) Close() { h.conn.Close() }

// Exchange sends request, raw, and returns every byte of the answer up to the end of the connection. The request must ask for
// the connection to be closed.
func Exchange(tb testing.TB, source, addr, request string, limit time.Duration) string {
	tb.Helper()
	c, err := dialFrom(source, addr)
	if err != nil {
		tb.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(limit))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		io.Copy(c, strings.NewReader(request)) // a server that answers early may close first; the answer decides
	}()
	answer, err := io.ReadAll(c)
	if err != nil {
		tb.Fatalf("answer to %.60q: %v after %q", request, err, tail(string(answer), 500))
	}
	c.Close()
	<-sent
	return string(answer)
}

// Ask sends request, raw, and returns the parsed answer with its body.
func Ask(tb testing.TB, source, addr, request string) (*http.Response, string) {
	tb.Helper()
	answer := Exchange(tb, source, addr, request, time.Minute)
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), nil)
	if err != nil {
		tb.Fatalf("answer to %.60q: %v in %q", request, err, tail(answer, 500))
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatalf("answer to %.60q: %v in %q", request, err, tail(answer, 500))
	}
	return resp, string(body)
}
