package gate

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/classify"
)

// shape is what one upload-pack request asks for, read from its first packets
// (gitprotocol-v2, gitprotocol-pack). It decides what a grant pays for and
// which requests a cap on clones counts.
type shape uint8

const (
	shapeUnknown   shape = iota // undecided: counts as dear
	shapeRefs                   // ls-refs
	shapeRound                  // a negotiation round without done
	shapeFetch                  // a fetch that has something, or asks for few
	shapePartial                // filter: a partial clone or a lazy fetch
	shapeShallow                // deepen, without a filter
	shapeClone                  // done, and nothing in common
	shapeArchive                // git archive
	shapeNegotiate              // wait-for-done: a push looks for common commits
)

// String returns the name used in logs and the state.
func (s shape) String() string {
	return [...]string{"unknown", "refs", "round", "fetch", "partial", "shallow", "clone", "archive", "negotiate"}[s]
}

// dear reports whether the upstream does a whole clone's work or, for all we
// can see, might.
func (s shape) dear() bool {
	return s == shapeClone || s == shapeShallow || s == shapeArchive || s == shapeUnknown
}

// dearKey is what all dear requests have in common.
const dearKey admission.Key = 1

// dear reports whether the request costs the upstream a clone's work.
func (s *subject) dear() bool {
	return (s.result.Kind == classify.ReadRPC || s.result.Kind == classify.ArchiveRPC) && s.shape.dear()
}

// shapePeek bounds how much of a body, decompressed, is looked at.
const shapePeek = 64 << 10

// shapeOf reads the shape from the start of an upload-pack body. whole says
// that data is all of it; when the peek ends undecided the shape is unknown.
func shapeOf(data []byte, encoding string, whole bool) shape {
	switch encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		zr, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return shapeUnknown
		}
		plain, err := io.ReadAll(io.LimitReader(zr, shapePeek+1))
		data, whole = plain, whole && err == nil
	default:
		return shapeUnknown
	}
	if len(data) > shapePeek {
		data, whole = data[:shapePeek], false
	}
	return readShape(data, whole)
}

// lines of an upload-pack request that decide its shape.
type packets struct {
	command                                            string
	want, have, done, deepen, filter, shallow, waiting bool
}

func readShape(data []byte, whole bool) shape {
	var p packets
	for len(data) >= 4 {
		n, ok := pktLen(data[:4])
		switch {
		case !ok:
			return shapeUnknown
		case n < 4:
			data = data[4:]
		case n > len(data):
			return p.shape(false)
		default:
			p.line(strings.TrimSuffix(string(data[4:n]), "\n"))
			data = data[n:]
		}
	}
	return p.shape(whole && len(data) == 0)
}

func (p *packets) line(s string) {
	word, rest, _ := strings.Cut(s, " ")
	switch {
	case strings.HasPrefix(s, "command="):
		p.command, _, _ = strings.Cut(strings.TrimPrefix(s, "command="), " ")
	case word == "want":
		p.want = true
		p.filter = p.filter || strings.Contains(rest, "filter=")
	case word == "have":
		p.have = true
	case word == "done":
		p.done = true
	case strings.HasPrefix(word, "deepen"):
		p.deepen = true
	case word == "filter":
		p.filter = true
	case word == "shallow":
		p.shallow = true
	case word == "wait-for-done":
		p.waiting = true
	}
}

// shape decides; whole says that nothing more can follow.
func (p *packets) shape(whole bool) shape {
	switch {
	case p.command == "ls-refs", p.command == "object-info", p.command == "bundle-uri":
		return shapeRefs
	case p.waiting && !p.want:
		return shapeNegotiate
	case p.have && p.done:
		return shapeFetch
	case p.have && whole:
		return shapeRound
	case p.have:
		return shapeFetch // more haves or done may follow; something is in common either way
	case p.filter && p.want:
		return shapePartial
	case !whole:
		return shapeUnknown
	case p.deepen && !p.done:
		return shapeRound // v0 asks for the new boundary first
	case p.deepen:
		return shapeShallow
	case p.want:
		return shapeClone
	}
	return shapeRefs // flush only: nothing is asked for
}
