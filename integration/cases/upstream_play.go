package cases

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// play is the answer to one request, being given.
type play struct {
	upstream *upstream
	call     *call
	w        http.ResponseWriter
	r        *http.Request
	flow     *http.ResponseController
	status   int
	started  bool // the header was sent
	answered bool // nothing more belongs into the answer
	trailers bool // grpc-status goes into the trailer
}

// run gives the whole answer and reports whether the client got it all.
func (p *play) run(b behaviour) bool {
	for i, part := range b {
		if !p.do(part, i == len(b)-1) {
			return false
		}
	}
	if !p.answered {
		switch {
		case p.started:
		case len(b) == 0 && p.upstream.name == gitUpstream:
			p.defaultGit()
		default:
			p.content(http.StatusOK)
		}
		p.upstream.ledger.finish(p.call, false)
	}
	return p.r.Context().Err() == nil
}

// do performs one part and reports whether to go on.
func (p *play) do(part part, last bool) bool {
	ctx := p.r.Context()
	switch part.do {
	case doHold:
		return p.hold()
	case doGRPCHold:
		p.trailers = true
		return p.hold() && p.grpc()
	case doSlow, doSilence:
		return pause(ctx, part.wait)
	case doIgnoreDisconnect:
		time.Sleep(part.wait) // works on, whoever listens
		return true
	case doOK, doStatus:
		p.content(part.status)
	case doChallenge:
		p.content(http.StatusUnauthorized)
	case doCount:
		return p.countBody()
	case doStream:
		return p.stream(part.size)
	case doSSE:
		return p.events(part.wait, last)
	case doSideband:
		return p.sideband(part)
	case doEcho:
		return p.echo()
	case doTrailers:
		p.trailer()
	case doEarlyHints:
		p.w.Header().Set("Link", "</style.css>; rel=preload; as=style")
		p.w.WriteHeader(http.StatusEarlyHints)
		p.w.Header().Del("Link")
		p.content(http.StatusOK)
	case doGit:
		return p.upstream.serveGit(p)
	case doCloseMid, doRefuse:
		p.upstream.ledger.finish(p.call, false)
		if p.started {
			p.flow.Flush()
		}
		panic(http.ErrAbortHandler)
	}
	return true
}

func (p *play) hold() bool {
	for {
		waits, changed := p.upstream.ledger.held(p.call.request)
		if !waits {
			return true
		}
		select {
		case <-changed:
		case <-p.r.Context().Done():
			return false
		}
	}
}

// start sends the header once.
func (p *play) start(status int, contentType string) {
	if p.started {
		return
	}
	p.started, p.status = true, status
	h := p.w.Header()
	if h.Get("Content-Type") == "" && contentType != "" {
		h.Set("Content-Type", contentType)
	}
	switch status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", challengeText)
	case http.StatusFound, http.StatusSeeOther, http.StatusMovedPermanently, http.StatusTemporaryRedirect:
		h.Set("Location", "/after")
	}
	p.upstream.ledger.update(func() {
		p.call.status = status
		p.call.challenge = h.Get("WWW-Authenticate")
	})
	p.w.WriteHeader(status)
}

const challengeText = `Basic realm="Case forge", charset="UTF-8"`

// content answers as the service of the path would.
func (p *play) content(status int) {
	if p.started {
		return
	}
	kind, body := serviceContent(p.r, status)
	if status == http.StatusOK && body != "" {
		p.w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	}
	p.start(status, kind)
	if status != http.StatusNoContent && status != http.StatusNotModified && p.r.Method != http.MethodHead {
		p.upstream.ledger.finish(p.call, false)
		io.WriteString(p.w, body)
	}
	p.answered = true
}

func (p *play) countBody() bool {
	if _, err := io.Copy(io.Discard, p.r.Body); err != nil {
		return false
	}
	p.content(http.StatusOK)
	return true
}

var filler = strings.Repeat("0123456789abcdef", 2048)

func (p *play) stream(size int64) bool {
	kind, _ := serviceContent(p.r, http.StatusOK)
	p.start(http.StatusOK, kind)
	for size > 0 {
		n := min(size, int64(len(filler)))
		if size -= n; size == 0 {
			p.upstream.ledger.finish(p.call, false)
		}
		if _, err := io.WriteString(p.w, filler[:n]); err != nil {
			return false
		}
		if p.flow.Flush() != nil {
			return false
		}
	}
	p.answered = true
	return p.r.Context().Err() == nil
}

// events sends one event after each interval: until the client leaves when
// nothing follows, else three.
func (p *play) events(every time.Duration, last bool) bool {
	p.start(http.StatusOK, "text/event-stream")
	p.flow.Flush()
	for i := 0; last || i < 3; i++ {
		if !pause(p.r.Context(), every) {
			return false
		}
		if waits, _ := p.upstream.ledger.held(p.call.request); !waits {
			break
		}
		if _, err := fmt.Fprintf(p.w, "id: %d\ndata: tick\n\n", i); err != nil {
			return false
		}
		p.flow.Flush()
	}
	p.answered = last
	return true
}

// sideband sends git side-band packets.
func (p *play) sideband(part part) bool {
	kind, _ := serviceContent(p.r, http.StatusOK)
	p.start(http.StatusOK, kind)
	send := func(payload string) bool {
		_, err := fmt.Fprintf(p.w, "%04x%s", len(payload)+4, payload)
		return err == nil && p.flow.Flush() == nil
	}
	switch part.band {
	case "error":
		return send("\x03fatal: the upstream gave up\n")
	case "progress", "keepalive":
		payload := map[string]string{"progress": "\x02Counting objects\r", "keepalive": "\x01"}[part.band]
		for range 3 {
			if !pause(p.r.Context(), part.wait) || !send(payload) {
				return false
			}
		}
		return true
	}
	for left := part.size; left > 0; {
		n := min(left, 32<<10)
		if !send("\x01" + filler[:n-min(n, 1)]) {
			return false
		}
		left -= n
	}
	_, err := io.WriteString(p.w, "0000")
	return err == nil
}

// echo copies what arrives to the answer at once, both ways open.
func (p *play) echo() bool {
	p.flow.EnableFullDuplex() // HTTP/2 needs none
	kind := p.r.Header.Get("Content-Type")
	if strings.HasPrefix(kind, "application/grpc") {
		p.trailers = true
	}
	p.start(http.StatusOK, kind)
	p.flow.Flush()
	buf := make([]byte, 32<<10)
	for {
		n, err := p.r.Body.Read(buf)
		if n > 0 {
			if _, werr := p.w.Write(buf[:n]); werr != nil || p.flow.Flush() != nil {
				return false
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return false
		}
	}
	if p.trailers {
		p.trailer()
	}
	p.answered = true
	return true
}

// grpc answers a held call with one empty message.
func (p *play) grpc() bool {
	p.start(http.StatusOK, "application/grpc")
	p.w.Write([]byte{0, 0, 0, 0, 0})
	p.trailer()
	p.answered = true
	return true
}

// trailer sends grpc-status and a checksum after the body.
func (p *play) trailer() {
	if !p.started {
		kind, body := serviceContent(p.r, http.StatusOK)
		p.start(http.StatusOK, kind)
		io.WriteString(p.w, body)
		p.flow.Flush()
	}
	p.w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	p.w.Header().Set(http.TrailerPrefix+"X-Checksum", "case")
	p.answered = true
}
