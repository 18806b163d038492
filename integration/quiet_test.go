package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// quiet is a gateway with two sites before one upstream that tells everything it was sent. The sites differ in one thing:
// with has the admission directive and nothing else.
type quiet struct {
	gateway *harness.Gateway
	echo    *harness.Echo
	with    string
	without string
}

func newQuiet(t *testing.T) *quiet {
	t.Helper()
	q := &quiet{echo: harness.StartEcho(t)}
	with, without := harness.Port(t), harness.Port(t)
	q.with, q.without = fmt.Sprintf("127.0.0.1:%d", with), fmt.Sprintf("127.0.0.1:%d", without)
	upstream := q.echo.Addr
	q.gateway = harness.StartGateway(t, harness.Config{
		Global: "servers {\n protocols h1 h2c\n}",
		Sites: fmt.Sprintf(`(upstream) {
	@grpc header Content-Type application/grpc*
	reverse_proxy @grpc h2c://%[3]s
	reverse_proxy %[3]s
}
http://:%[1]d {
	admission
	import upstream
}
http://:%[2]d {
	import upstream
}`, with, without, upstream),
	})
	return q
}

// closing ends the header of a raw request.
const closing = "Host: git.test\r\nConnection: close\r\n"

// quietRequests is the traffic of an ordinary forge that has nothing to do with git over HTTP.
func quietRequests() map[string]string {
	get := func(target string, header ...string) string {
		return "GET " + target + " HTTP/1.1\r\n" + closing + strings.Join(append(header, ""), "\r\n") + "\r\n"
	}
	send := func(method, target, body string, header ...string) string {
		header = append(header, fmt.Sprintf("Content-Length: %d", len(body)), "")
		return method + " " + target + " HTTP/1.1\r\n" + closing + strings.Join(header, "\r\n") + "\r\n" + body
	}
	chunked := func(method, target string, chunks ...string) string {
		b := method + " " + target + " HTTP/1.1\r\n" + closing + "Transfer-Encoding: chunked\r\n\r\n"
		for _, c := range chunks {
			b += fmt.Sprintf("%x\r\n%s\r\n", len(c), c)
		}
		return b + "0\r\n\r\n"
	}
	basic, bearer := "Authorization: Basic YWxpY2U6d3Jvbmc=", "Authorization: Bearer made-up"
	blob := strings.Repeat("0123456789abcdef", 25<<20/16)
	return map[string]string{
		"front page":                  get("/"),
		"favicon":                     get("/favicon.ico", "If-None-Match: \"echo\""),
		"probe":                       get("/api/healthz", "User-Agent: kube-probe/1.30"),
		"probe HEAD":                  "HEAD /-/health HTTP/1.1\r\n" + closing + "\r\n",
		"HTTP/1.0":                    "GET /api/healthz HTTP/1.0\r\nHost: git.test\r\n\r\n",
		"OPTIONS *":                   "OPTIONS * HTTP/1.1\r\n" + closing + "\r\n",
		"CORS preflight":              "OPTIONS /api/v1/user HTTP/1.1\r\n" + closing + "Origin: https://x.test\r\nAccess-Control-Request-Method: POST\r\n\r\n",
		"TRACE":                       "TRACE / HTTP/1.1\r\n" + closing + "\r\n",
		"API version":                 get("/api/v1/version"),
		"API with a made-up password": get("/api/v1/repos/o/r", basic),
		"API with a token in a query": get("/api/v1/user?access_token=zzz&private_token=yyy"),
		"API two credentials":         get("/api/v1/user", basic, bearer, "PRIVATE-TOKEN: x", "Cookie: i_like_gitea=abc; session=def"),
		"API create":                  send("POST", "/api/v1/repos/o/r/issues", `{"title":"x"}`, "Content-Type: application/json", bearer),
		"API patch":                   send("PATCH", "/api/v4/projects/7", `{}`, "Content-Type: application/json"),
		"API delete":                  "DELETE /api/v1/repos/o/r HTTP/1.1\r\n" + closing + "\r\n",
		"API refused":                 get("/api/v1/user?status=401"),
		"API missing":                 get("/api/v1/nothing?status=404"),
		"API broken":                  get("/api/v1/broken?status=500"),
		"API too many":                get("/api/v1/broken?status=429"),
		"API no content":              get("/api/v4/jobs?status=204"),
		"API not modified":            get("/x?status=304"),
		"redirect":                    get("/login?status=303"),
		"chunked answer":              get("/o/r/activity?chunked"),
		"large answer":                get("/o/r/raw/branch/main/big.bin?size=1000000"),
		"compressed answer wanted":    get("/o/r", "Accept-Encoding: gzip, br, zstd"),
		"range":                       get("/o/r/raw/branch/main/big.bin?size=1000", "Range: bytes=0-99"),
		"raw":                         get("/o/r/raw/branch/main/README.md"),
		"archive":                     get("/o/r/archive/main.tar.gz"),
		"blame":                       get("/o/r/blame/branch/main/x.go"),
		"registry ping":               get("/v2/?status=401"),
		"registry token":              get("/v2/token?service=registry&scope=repository:o/r:push,pull", basic),
		"registry start upload":       send("POST", "/v2/o/r/blobs/uploads/?status=202", "", bearer),
		"registry patch":              chunked("PATCH", "/v2/o/r/blobs/uploads/1?status=202", "first", strings.Repeat("second", 9000)),
		"registry put blob":           send("PUT", "/v2/o/r/blobs/uploads/1?digest=sha256:00&status=201", blob, "Content-Type: application/octet-stream", bearer),
		"registry put with Expect":    send("PUT", "/v2/o/r/manifests/latest", `{"schemaVersion":2}`, "Expect: 100-continue", bearer),
		"registry manifest HEAD":      "HEAD /v2/o/r/manifests/latest HTTP/1.1\r\n" + closing + "\r\n",
		"registry pull":               get("/v2/o/r/blobs/sha256:aa?size=300000"),
		"package npm":                 send("PUT", "/api/packages/o/npm/x", `{"name":"x"}`, basic),
		"package generic":             chunked("PUT", "/api/packages/o/generic/x/1/x.bin", strings.Repeat("p", 100000)),
		"package download":            get("/api/packages/o/pypi/simple/x/"),
		"runner poll":                 send("POST", "/api/v4/jobs/request?status=204", `{"token":"t"}`),
		"runner fetch task":           send("POST", "/api/actions/runner.v1.RunnerService/FetchTask", "\x0a\x00", "Content-Type: application/proto"),
		"webhook":                     send("POST", "/hooks/ci", `{}`, "X-Hub-Signature-256: sha256=00", "Content-Type: application/json"),
		"logout":                      send("POST", "/oidc/backchannel-logout", "logout_token=a.b.c", "Content-Type: application/x-www-form-urlencoded"),
		"login":                       send("POST", "/user/login", "user_name=a&password=b", "Content-Type: application/x-www-form-urlencoded"),
		"forwarded headers":           get("/", "X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: https", "Forwarded: for=203.0.113.9", "X-Real-IP: 203.0.113.9"),
		"upper and lower case":        get("/", "x-cUsToM: One", "X-Custom: two", "accept:  spaced "),
		"encoded path":                get("/a%2Fb//c/./d/../%41%7e?x=%20&&=;y"),
		"looks a little like git":     get("/o/r/wiki/git-receive-pack-explained?service=git-receive-pack"),
		"WebDAV":                      "PROPFIND /dav/ HTTP/1.1\r\n" + closing + "Depth: 0\r\n\r\n",
		"bad request":                 "GET / HTTP/1.1\r\n" + closing + "Bad Header\r\n\r\n",
		"two hosts":                   "GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\nConnection: close\r\n\r\n",
		"several on one connection": "GET /one HTTP/1.1\r\nHost: git.test\r\n\r\n" +
			"POST /two HTTP/1.1\r\nHost: git.test\r\nContent-Length: 3\r\n\r\nabc" + get("/three"),
	}
}

// TestQuietSite compares, byte for byte, the answers of a site with the bare directive to those of the same site without it.
func TestQuietSite(t *testing.T) {
	q := newQuiet(t)
	for name, request := range quietRequests() {
		t.Run(name, func(t *testing.T) {
			want := withoutInterim(harness.Exchange(t, "", q.without, request, time.Minute))
			got := withoutInterim(harness.Exchange(t, "", q.with, request, time.Minute))
			wantSameBytes(t, got, want)
			if !strings.Contains(want, "git.test") && !strings.HasPrefix(want, "HTTP/1.1 400") && !bodiless(name, want) {
				t.Errorf("the answer shows nothing of the request, so the comparison says nothing: %.300q", want)
			}
		})
	}
	t.Run("WebSocket", func(t *testing.T) { quietWebSocket(t, q) })
	t.Run("event stream", func(t *testing.T) { quietEvents(t, q) })
	t.Run("gRPC over HTTP/2", func(t *testing.T) { quietGRPC(t, q) })
	for class, c := range q.gateway.Pool(t).Classes {
		if c.Refused() != 0 {
			t.Errorf("class %s refused: %v", class, c.Decisions)
		}
	}
}

// bodiless reports whether an answer has no body that could show the request.
func bodiless(name, answer string) bool {
	for _, status := range []string{" 204 ", " 304 "} {
		if strings.HasPrefix(answer, "HTTP/1.1"+status) {
			return true
		}
	}
	return strings.Contains(name, "HEAD") || name == "OPTIONS *"
}

// withoutInterim removes the 100 Continue answers in front: Caddy alone sends one or two, as the upstream's own is faster or not.
func withoutInterim(answer string) string {
	for strings.HasPrefix(answer, "HTTP/1.1 100 ") {
		_, answer, _ = strings.Cut(answer, "\r\n\r\n")
	}
	return answer
}

func wantSameBytes(t *testing.T, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	from := max(0, at-200)
	t.Errorf("answers differ at byte %d of %d and %d:\nwith    %q\nwithout %q", at, len(got), len(want),
		got[from:min(len(got), at+200)], want[from:min(len(want), at+200)])
}

// quietWebSocket switches to a WebSocket on both sites and sends bytes both ways.
func quietWebSocket(t *testing.T, q *quiet) {
	talk := func(addr string) string {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(30 * time.Second))
		io.WriteString(conn, "GET /api/ws HTTP/1.1\r\nHost: git.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
		r := bufio.NewReader(conn)
		var all strings.Builder
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatalf("%v after %q", err, all.String())
			}
			all.WriteString(line)
			if line == "\r\n" {
				break
			}
		}
		for _, frame := range []string{"\x81\x05hello", "\x82\x7e\x01\x00" + strings.Repeat("b", 256)} {
			io.WriteString(conn, frame)
			back := make([]byte, len(frame))
			if _, err := io.ReadFull(r, back); err != nil {
				t.Fatalf("frame: %v", err)
			}
			all.Write(back)
		}
		return all.String()
	}
	want := talk(q.without)
	if !strings.HasPrefix(want, "HTTP/1.1 101 ") {
		t.Fatalf("no WebSocket without the directive: %.200q", want)
	}
	wantSameBytes(t, sortedHead(talk(q.with)), sortedHead(want))
}

// sortedHead sorts the header lines of an answer: after a switch of protocols Caddy writes them in the order of a map.
func sortedHead(answer string) string {
	head, rest, _ := strings.Cut(answer, "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	slices.Sort(lines[1:])
	return strings.Join(lines, "\r\n") + "\r\n\r\n" + rest
}

// quietEvents reads an event stream on both sites; each event must arrive before the next one is sent.
func quietEvents(t *testing.T, q *quiet) {
	listen := func(addr string) string {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(30 * time.Second))
		io.WriteString(conn, "GET /user/events HTTP/1.1\r\nHost: git.test\r\nAccept: text/event-stream\r\nConnection: close\r\n\r\n")
		r := bufio.NewReader(conn)
		var all strings.Builder
		until := func(mark string) {
			for {
				line, err := r.ReadString('\n')
				all.WriteString(line)
				if err != nil {
					t.Fatalf("%v before %q, after %q", err, mark, all.String())
				}
				if strings.Contains(line, mark) {
					return
				}
			}
		}
		until(": \"GET")
		for _, event := range []string{"one", "two", "three"} {
			q.echo.Send(event)
			until("data: " + event)
		}
		q.echo.Send("")
		rest, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return all.String() + string(rest)
	}
	want := listen(q.without)
	wantSameBytes(t, listen(q.with), want)
}

// quietGRPC makes a gRPC-like call over HTTP/2 without TLS, with trailers.
func quietGRPC(t *testing.T, q *quiet) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	call := func(addr string) string {
		req, err := http.NewRequest("POST", "http://"+addr+"/grpc.Service/Call", strings.NewReader("\x00\x00\x00\x00\x02hi"))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "git.test"
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s %s\n", resp.Proto, resp.Status)
		resp.Header.Write(&b)
		fmt.Fprintf(&b, "\n%s\n", body)
		resp.Trailer.Write(&b)
		return b.String()
	}
	want := call(q.without)
	if !strings.Contains(want, "Grpc-Status: 0") || !strings.HasPrefix(want, "HTTP/2.0 200") {
		t.Fatalf("no gRPC answer without the directive: %.300q", want)
	}
	wantSameBytes(t, call(q.with), want)
}
