package webhook

import (
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Head is a request whose headers passed every check; its body has not been
// read. It is a value of one request and not safe for concurrent use.
type Head struct {
	v         *Verifier
	header    http.Header
	form      bool
	digest    [64]byte // canonical MAC
	sha1      [20]byte // companion MAC
	hasSHA1   bool
	id, event string
	signedAt  time.Time
}

// CheckHead runs every check that needs no body, in this order: method;
// declared length; content type and encoding; header aliases; exactly one
// well-formed canonical signature header; other signature headers; event,
// delivery and further headers; timestamp; credential. It reads the header
// and the query of r and never its body.
func (v *Verifier) CheckHead(r *http.Request, now time.Time) (*Head, *Refusal) {
	h := &Head{v: v, header: r.Header}
	steps := [...]func(*http.Request) *Refusal{
		h.checkMethod, h.checkLength, h.checkContent, h.checkAliases,
		h.checkCanonical, h.checkCompanions, h.checkRules,
	}
	for _, step := range steps {
		if bad := step(r); bad != nil {
			return nil, bad
		}
	}
	if bad := h.checkTime(now); bad != nil {
		return nil, bad
	}
	if v.profile.BeforeBody() && !v.credentialOK(r.Header.Get(v.profile.canonical.name)) {
		return nil, refuse(BadToken)
	}
	return h, nil
}

// Limit returns the most bytes the body may have.
func (h *Head) Limit() int64 { return h.v.limit(h.form) }

// Charge returns what the byte bucket pays for a request of that declared
// length, -1 meaning none: at most the body cap.
func (h *Head) Charge(declared int64) int64 {
	if declared < 0 {
		return min(h.v.profile.Charge(), h.Limit())
	}
	return min(declared, h.Limit())
}

func (h *Head) checkMethod(r *http.Request) *Refusal {
	if r.Method != http.MethodPost {
		return refuse(BadMethod)
	}
	return nil
}

func (h *Head) checkLength(r *http.Request) *Refusal {
	if values := r.Header["Content-Type"]; len(values) == 1 {
		media, _, _ := strings.Cut(values[0], ";")
		h.form = strings.EqualFold(strings.TrimSpace(media), formType)
	}
	switch {
	case r.ContentLength > h.Limit():
		return refuse(TooLarge)
	case r.ContentLength == 0:
		return refuse(NoBody)
	}
	return nil
}

const (
	jsonType = "application/json"
	formType = "application/x-www-form-urlencoded"
)

func (h *Head) checkContent(r *http.Request) *Refusal {
	values := r.Header["Content-Type"]
	if len(values) != 1 || len(values[0]) > maxHeaderValue {
		return refuse(BadContentType)
	}
	media, params, more := strings.Cut(values[0], ";")
	media = strings.TrimSpace(media)
	if !strings.EqualFold(media, jsonType) && (!h.form || h.v.profile.MaxBodyForm == 0) {
		return refuse(BadContentType)
	}
	if more && !charsetUTF8(params) {
		return refuse(BadContentType)
	}
	switch enc := r.Header["Content-Encoding"]; {
	case len(enc) == 0:
	case len(enc) > 1 || !strings.EqualFold(enc[0], "identity"):
		return refuse(BadEncoding)
	}
	return nil
}

// charsetUTF8 accepts the one parameter charset=utf-8, quoted or not.
func charsetUTF8(params string) bool {
	name, value, ok := strings.Cut(strings.TrimSpace(params), "=")
	return ok && strings.EqualFold(name, "charset") &&
		(strings.EqualFold(value, "utf-8") || strings.EqualFold(value, `"utf-8"`))
}

// checkAliases refuses a name with "_" or "." that becomes one of the
// profile's or the known signature headers once those are read as "-", as
// CGI, WSGI, Rack and PHP do.
func (h *Head) checkAliases(r *http.Request) *Refusal {
	for name := range r.Header {
		if !strings.ContainsAny(name, "_.") || len(name) > maxHeaderValue {
			continue
		}
		folded := http.CanonicalHeaderKey(strings.NewReplacer("_", "-", ".", "-").Replace(name))
		if _, bad := h.v.reserved[folded]; bad {
			return refuse(HeaderAlias)
		}
	}
	return nil
}

func (h *Head) checkCanonical(r *http.Request) *Refusal {
	p := h.v.profile
	var values []string
	if p.query == "" {
		values = r.Header[p.canonical.name]
	} else if query, err := url.ParseQuery(r.URL.RawQuery); err == nil {
		values = query[p.query]
	}
	if len(values) != 1 || len(values[0]) > maxHeaderValue || !p.canonical.ok(values[0]) {
		return refuse(BadSignature)
	}
	if p.Auth == HMAC {
		_, _ = hex.Decode(h.digest[:], []byte(values[0][len(p.prefix):]))
	}
	return nil
}

func (h *Head) checkCompanions(r *http.Request) *Refusal {
	p := h.v.profile
	for _, name := range signatureHeaders {
		values := r.Header[name]
		if len(values) == 0 || name == p.canonical.name {
			continue
		}
		c := p.companion(name)
		if c == nil {
			return refuse(ForeignHeader)
		}
		if len(values) > 1 || len(values[0]) > maxHeaderValue || !c.ok(values[0]) {
			return refuse(BadCompanion)
		}
		if bad := h.noteCompanion(c, values[0][len(c.prefix):]); bad != nil {
			return bad
		}
	}
	return nil
}

func (h *Head) noteCompanion(c *companion, digest string) *Refusal {
	switch {
	case c.sha1:
		_, _ = hex.Decode(h.sha1[:], []byte(digest))
		h.hasSHA1 = true
	case c.sameDigest:
		var other [64]byte
		_, _ = hex.Decode(other[:], []byte(digest))
		if other != h.digest {
			return refuse(DigestMismatch)
		}
	}
	return nil
}

func (h *Head) checkRules(r *http.Request) *Refusal {
	p := h.v.profile
	for i := range p.required {
		if len(r.Header[p.required[i].name]) != 1 {
			return refuse(BadHeader)
		}
	}
	for _, rules := range [...][]rule{p.required, p.optional} {
		for i := range rules {
			values := r.Header[rules[i].name]
			if len(values) == 0 {
				continue
			}
			if len(values) > 1 || len(values[0]) > maxHeaderValue || !rules[i].ok(values[0]) {
				return refuse(BadHeader)
			}
		}
	}
	h.id, h.event = r.Header.Get(p.id.header), r.Header.Get(p.event.header)
	return nil
}

func (h *Head) checkTime(now time.Time) *Refusal {
	p := h.v.profile
	if p.Tolerance == 0 {
		return nil
	}
	seconds, err := strconv.ParseInt(h.header.Get("Webhook-Timestamp"), 10, 64)
	if err != nil {
		return refuse(BadTimestamp)
	}
	h.signedAt = time.Unix(seconds, 0)
	if now.Truncate(time.Second).Sub(h.signedAt).Abs() > p.Tolerance {
		return refuse(BadTimestamp)
	}
	return nil
}
