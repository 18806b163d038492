package cases

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// wire is one request, ready to be sent.
type wire struct {
	id      string
	method  string
	target  string // as written in the request line
	headers Headers
	host    string
	peer    string // local address to send from, "" for any

	body     []byte // nil: no body
	declared int64  // Content-Length that is written, -1 for none
	chunked  bool
	rate     float64 // body bytes per second, 0 for no limit
	then     string  // after the body: "", stall, close, reset or fin

	readBPS   float64
	readAll   bool
	readLimit int64 // when !readAll: bytes after which the client stops reading
	readPause time.Duration
	metered   bool // measure what the peer takes
	follow    bool // a stream in the foreground: leave after two events
}

func (w *wire) deliveryID() string {
	return deliveryID(func(name string) string { v, _ := w.headers.Get(name); return v })
}

func (w *wire) set(name, value string) {
	w.headers = slices.DeleteFunc(w.headers, func(h Header) bool { return strings.EqualFold(h.Name, name) })
	w.headers = append(w.headers, Header{name, value})
}

func (w *wire) setDefault(name, value string) {
	if _, ok := w.headers.Get(name); !ok {
		w.headers = append(w.headers, Header{name, value})
	}
}

// build makes request i of a step.
func (t *tokens) build(s *Step, i int, id string) (*wire, error) {
	w := &wire{id: id, method: s.Method, host: t.gateway, peer: s.Peer, declared: -1, readAll: true, then: s.Then,
		readBPS: s.ClientReadBPS, readPause: millis(s.ClientPauseMS)}
	b := &builder{t: t, s: s, w: w, scope: scope{i: i}}
	for _, build := range []func() error{b.reading, b.content, b.target, b.fields, b.origin, b.framing} {
		if err := build(); err != nil {
			return nil, fmt.Errorf("step %s: %w", s.Name, err)
		}
	}
	return w, nil
}

// builder holds one request while it is made.
type builder struct {
	t     *tokens
	s     *Step
	w     *wire
	scope scope
}

func (b *builder) expand(text string) (string, error) { return b.t.expand(text, b.scope) }

func (b *builder) reading() error {
	word, arg, _ := strings.Cut(b.s.ClientRead, ":")
	switch word {
	case "", "all":
	case "none":
		b.w.readAll = false
	case "none_after":
		n, err := parseSize(arg)
		if err != nil {
			return err
		}
		b.w.readAll, b.w.readLimit = false, n
	default:
		return fmt.Errorf("unknown client_read %q", b.s.ClientRead)
	}
	return nil
}

func (b *builder) target() error {
	path := b.s.Path
	if len(b.s.PathEach) > 0 {
		path = b.s.PathEach[b.scope.i%len(b.s.PathEach)]
	}
	var err error
	if b.w.target, err = b.expand(path); err != nil {
		return err
	}
	if b.w.method == "" {
		b.w.method = "GET"
		if b.w.body != nil {
			b.w.method = "POST"
		}
	}
	b.w.method, err = b.expand(b.w.method)
	return err
}

// fields writes the header fields, after the body is known.
func (b *builder) fields() error {
	list := slices.Concat(b.s.Headers, b.s.RawHeaders)
	if n := len(b.s.HeadersEach); n > 0 {
		list = slices.Concat(list, b.s.HeadersEach[b.scope.i%n])
	}
	user, err := b.s.userHeaders(b.scope.i)
	if err != nil {
		return err
	}
	for _, h := range slices.Concat(list, user) {
		value, err := b.expand(h.Value)
		if err != nil {
			return fmt.Errorf("header %s: %w", h.Name, err)
		}
		if strings.EqualFold(h.Name, "Host") {
			b.w.host = value
			continue
		}
		b.w.headers = append(b.w.headers, Header{h.Name, value})
	}
	if b.s.Client != "" {
		b.w.setDefault("User-Agent", b.s.Client)
	}
	if len(b.s.Form) > 0 {
		b.w.setDefault("Content-Type", "application/x-www-form-urlencoded")
	}
	if kind := gitContentType(b.w.method, b.w.target); kind != "" {
		b.w.setDefault("Content-Type", kind)
	}
	if b.w.id != "" {
		b.w.set(requestHeader, b.w.id)
	}
	return nil
}

// gitContentType is what git itself sends with a request to a git service. A
// step that posts there and names no type stands for a git client.
func gitContentType(method, target string) string {
	service := target[strings.LastIndex(target, "/")+1:]
	switch service {
	case "git-upload-pack", "git-receive-pack", "git-upload-archive":
		if method == "POST" {
			return "application/x-" + service + "-request"
		}
	}
	return ""
}

// userHeaders gives request i the credential of one of n distinct users. The
// word is a number of users, or fields in which {{i}} is the user.
func (s *Step) userHeaders(i int) (Headers, error) {
	if len(s.HeadersEachUser) == 0 {
		return nil, nil
	}
	var n int
	if json.Unmarshal(s.HeadersEachUser, &n) == nil {
		if n < 1 {
			return nil, fmt.Errorf("headers_each_user: want at least one user")
		}
		return Headers{{"Authorization", fmt.Sprintf("Basic {{b64:user%d:pw}}", i%n)}}, nil
	}
	var text string
	if json.Unmarshal(s.HeadersEachUser, &text) == nil {
		return Headers{{"Authorization", text}}, nil
	}
	var list Headers
	err := json.Unmarshal(s.HeadersEachUser, &list)
	return list, err
}

func (b *builder) origin() error {
	from := b.s.From
	if b.s.FromEach != "" {
		from = b.s.FromEach
	}
	from, err := b.expand(from)
	if err == nil && from != "" {
		b.w.setDefault("X-Forwarded-For", from)
	}
	return err
}

// flow is the client address that the request stands for.
func (w *wire) flow() string {
	if v, ok := w.headers.Get("X-Forwarded-For"); ok && (w.peer == "" || w.peer == "127.0.0.1") {
		parts := strings.Split(v, ",")
		return strings.TrimSpace(parts[len(parts)-1])
	}
	if w.peer != "" {
		return w.peer
	}
	return "127.0.0.1"
}

func (b *builder) content() error {
	if len(b.s.Form) > 0 {
		form := url.Values{}
		for name, value := range b.s.Form {
			v, err := b.expand(value)
			if err != nil {
				return err
			}
			form.Set(name, v)
		}
		b.w.body = []byte(form.Encode())
	}
	body := b.s.Body
	if body == nil {
		b.scope.body = b.w.body
		return nil
	}
	b.w.chunked, b.w.rate = body.Chunked, body.RateBPS
	if body.Then != "" {
		b.w.then = body.Then
	}
	raw, err := b.bodyBytes(body)
	b.w.body, b.scope.body = raw, raw
	return err
}

func (b *builder) bodyBytes(body *Body) ([]byte, error) {
	switch {
	case body.Raw != nil:
		text, err := b.expand(*body.Raw)
		return []byte(text), err
	case body.JSONRepo != "":
		repo, err := b.expand(body.JSONRepo)
		if err != nil {
			return nil, err
		}
		seq, err := b.sequence(body)
		if err != nil {
			return nil, err
		}
		return pushBody(repo, seq, size(body)), nil
	case body.Fill == "json":
		if strings.HasSuffix(b.s.Path, "/objects/batch") {
			return padded(`{"operation":"download","transfers":["basic"],"objects":[],"pad":"`, size(body)), nil
		}
		return pushBody("o/r", b.scope.i, size(body)), nil
	}
	return fill(body.Fill, size(body))
}

func size(body *Body) int64 {
	if body.Bytes == nil {
		return -1
	}
	return *body.Bytes
}

// sequence is the number inside a body: as written, or the request's index.
func (b *builder) sequence(body *Body) (int, error) {
	if len(body.Seq) == 0 || string(body.Seq) == "true" {
		return b.scope.i, nil
	}
	text := strings.Trim(string(body.Seq), `"`)
	text, err := b.expand(text)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("body seq %s is no number", body.Seq)
	}
	return n, nil
}

// pushBody is a push event as GitHub, Gitea and GitLab name things, of exactly
// size bytes when that is large enough and size is not negative.
func pushBody(repository string, seq int, size int64) []byte {
	name := repository[strings.LastIndex(repository, "/")+1:]
	base := fmt.Sprintf(`{"ref":"refs/heads/main","after":"%040x","repository":{"id":7,"name":%q,"full_name":%q},`+
		`"project":{"path_with_namespace":%q},"seq":%d,"pad":"`, seq, name, repository, repository, seq)
	if size >= 0 && int64(len(base)+2) > size {
		return padded(`{"pad":"`, size)
	}
	return padded(base, size)
}

// padded closes a JSON text that ends inside a string, with filling up to size.
func padded(open string, size int64) []byte {
	if n := size - int64(len(open)) - 2; n > 0 {
		open += strings.Repeat("x", int(n))
	} else if size >= 0 && n < 0 {
		return []byte(strings.Repeat("1", int(size)))
	}
	return []byte(open + `"}`)
}

func fill(kind string, size int64) ([]byte, error) {
	if size < 0 {
		return nil, fmt.Errorf("body: neither bytes nor raw nor json_repo")
	}
	switch kind {
	case "", "zero", "zeros":
		return []byte(strings.Repeat("0", int(size))), nil
	case "random":
		return randomBytes(size), nil
	case "text", "x":
		return []byte(strings.Repeat("x", int(size))), nil
	}
	return nil, fmt.Errorf("unknown body fill %q", kind)
}

// framing says how the end of the body is told.
func (b *builder) framing() error {
	_, declared := b.w.headers.Get("Content-Length")
	_, coded := b.w.headers.Get("Transfer-Encoding")
	switch {
	case declared, coded: // as the case wrote it
	case b.w.chunked:
	case b.w.body != nil, b.w.method == "POST", b.w.method == "PUT":
		b.w.declared = int64(len(b.w.body))
	}
	switch b.w.then {
	case "", "stall", "close", "reset", "fin":
		if b.w.then == "stall" && b.w.declared == int64(len(b.w.body)) {
			b.w.declared++ // more is announced than comes
		}
		return nil
	}
	return fmt.Errorf("unknown then %q", b.w.then)
}
