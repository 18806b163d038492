package gate

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/caddy-admission/gateway/admission/classify"
	"github.com/caddy-admission/gateway/admission/identity"
)

// questionTime bounds one question to the upstream.
const questionTime = 5 * time.Second

// questionPeek is how much of the answer to a question is read.
const questionPeek = 4 << 10

// askable reports whether an accepted answer to s can raise the question that
// proves its credential: a canonical discovery request or LFS batch.
func (s *subject) askable() bool {
	switch s.result.Kind {
	case classify.ReadDiscovery, classify.PushDiscovery, classify.LFSBatch:
		return s.result.Canonical && s.cred.Form != identity.Unusable
	}
	return false
}

// accepted reports whether an upstream's answer is a real acceptance of the
// request: status 200, the right content type, and a body that does not start
// with an error packet. A body in an encoding that cannot be looked into is
// none.
func accepted(s *subject, status int, h http.Header, start []byte) bool {
	if status != http.StatusOK {
		return false
	}
	start, ok := decodePeek(h, start)
	if !ok {
		return false
	}
	if isLFS(s.result.Kind) {
		t, _, _ := strings.Cut(h.Get("Content-Type"), ";")
		return strings.TrimSpace(t) == lfsMediaType
	}
	return h.Get("Content-Type") == "application/x-"+s.result.Service+"-advertisement" && !isErrorPacket(start)
}

// decodePeek returns the plain start of a body.
func decodePeek(h http.Header, start []byte) ([]byte, bool) {
	switch h.Get("Content-Encoding") {
	case "", "identity":
		return start, true
	case "gzip":
		zr, err := gzip.NewReader(bytes.NewReader(start))
		if err != nil {
			return nil, false
		}
		plain := make([]byte, questionPeek)
		n, _ := io.ReadFull(zr, plain)
		return plain[:n], n > 0
	}
	return nil, false
}

// isErrorPacket reports whether an advertisement is a refusal: an ERR packet,
// alone or after the service line (gitprotocol-pack, "Error packet"; gitolite
// refuses in this way with status 200).
func isErrorPacket(b []byte) bool {
	for range 3 {
		if len(b) < 4 {
			return false
		}
		n, ok := pktLen(b[:4])
		if !ok {
			return true // not a packet at all: nothing was accepted
		}
		if n < 4 { // flush, delimiter
			b = b[4:]
			continue
		}
		line := b[4:min(n, len(b))]
		if bytes.HasPrefix(line, []byte("ERR ")) {
			return true
		}
		if !bytes.HasPrefix(line, []byte("# service=")) {
			return false
		}
		b = b[min(n, len(b)):]
	}
	return false
}

// pktLen parses the four hex digits in front of a pkt-line.
func pktLen(b []byte) (int, bool) {
	n := 0
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | int(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | int(c-'a'+10)
		case c >= 'A' && c <= 'F':
			n = n<<4 | int(c-'A'+10)
		default:
			return 0, false
		}
	}
	return n, true
}

// lfsService names the question of an LFS batch: an upload and a download of
// one repository have different answers.
func lfsService(body []byte) string {
	var batch struct {
		Operation string `json:"operation"`
	}
	if json.Unmarshal(body, &batch) != nil {
		return "lfs"
	}
	switch batch.Operation {
	case "upload", "download":
		return "lfs-" + batch.Operation
	}
	return "lfs"
}

// ask sends the same request once more without its one credential, through the
// same handlers, and says what the upstream made of it.
func (g *Gate) ask(ctx context.Context, r *http.Request, b *body, s *subject, next Next) identity.Answer {
	return g.askAs(ctx, r, b, s, "", next)
}

// askAs is ask with another Authorization in place of none.
func (g *Gate) askAs(ctx context.Context, r *http.Request, b *body, s *subject, authorization string, next Next) identity.Answer {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), questionTime)
	defer cancel()
	w := &answerWriter{header: http.Header{}, cancel: cancel}
	q := g.opts.Prepare(r.WithContext(ctx), w)
	q.Header = r.Header.Clone()
	q.Header.Del("Authorization")
	if authorization != "" {
		q.Header.Set("Authorization", authorization)
	}
	q.Body, q.ContentLength = http.NoBody, 0
	if b != nil {
		q.Body, q.ContentLength = io.NopCloser(bytes.NewReader(b.data)), int64(len(b.data))
		q.TransferEncoding = nil
	}
	if !g.runQuestion(w, q, next) {
		return identity.Unknown
	}
	return judge(r, s, w)
}

// namesUser reports whether the answer may say that two accounts have one
// password: a proven secret comes under a name that is new to it.
func (x *exchange) namesUser() bool {
	s := x.s
	return s.state == classify.Proven && s.askable() && s.result.Kind != classify.LFSBatch &&
		x.g.state.Identity.Account(s.cred).Zero() && x.g.state.Identity.NameOpen(s.cred)
}

// name asks whether the secret opens this repository under any name, as a token
// does: the same request with a name that nobody has. Refused means that the
// name matters, so it is an account of its own, with limits of its own.
func (x *exchange) name() {
	s, id := x.s, x.g.state.Identity
	_, password, ok := x.r.BasicAuth()
	if !ok {
		return
	}
	nobody := "Basic " + base64.StdEncoding.EncodeToString([]byte(rand.Text()+":"+password))
	target := s.target
	target.Service = "name " + target.Service
	if id.Ask(x.r.Context(), target, s.cred.Secret, clock, func(ctx context.Context) identity.Answer {
		return x.g.askAs(ctx, x.r, nil, s, nobody, x.next)
	}) == identity.Refused {
		id.Named(s.cred)
	}
}

// runQuestion runs next for a question; it reports whether there is a status.
// next may leave by panic when the upstream breaks off or the peek is full.
func (g *Gate) runQuestion(w *answerWriter, q *http.Request, next Next) (ok bool) {
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			w.status = 0
		}
		ok = w.status != 0
	}()
	if err := next(w, q); err != nil && w.status == 0 {
		w.status = g.opts.StatusOf(err)
	}
	return
}

// judge maps the answer to a question without the credential.
func judge(r *http.Request, s *subject, w *answerWriter) identity.Answer {
	switch {
	case w.status == http.StatusUnauthorized, w.status == http.StatusForbidden, w.status == http.StatusNotFound:
		return identity.Refused
	case w.status >= 300 && w.status < 400 && elsewhere(r, w.header.Get("Location")):
		return identity.Refused
	case accepted(s, w.status, w.header, w.body):
		return identity.Accepted
	}
	return identity.Unknown
}

// elsewhere reports whether a redirect leads to another path: to a login page,
// not to another spelling of the same repository.
func elsewhere(r *http.Request, location string) bool {
	u, err := r.URL.Parse(location)
	if err != nil || location == "" {
		return false
	}
	return classify.Fold(strings.Replace(u.EscapedPath(), ".git/", "/", 1)) !=
		classify.Fold(strings.Replace(r.URL.EscapedPath(), ".git/", "/", 1))
}

// answerWriter keeps the status, the header and the start of an answer. When
// it has enough, it cancels the request.
type answerWriter struct {
	header http.Header
	status int
	body   []byte
	cancel context.CancelFunc
}

func (w *answerWriter) Header() http.Header { return w.header }

func (w *answerWriter) WriteHeader(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
		w.header = w.header.Clone()
	}
}

func (w *answerWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.body = append(w.body, b[:min(len(b), questionPeek-len(w.body))]...)
	if len(w.body) >= questionPeek {
		w.cancel()
	}
	return len(b), nil
}

// Flush does nothing; reverse proxies flush what they stream.
func (w *answerWriter) Flush() {}
