package cases

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// verb is one thing an upstream does.
type verb string

// The closed set of verbs.
const (
	doHold             verb = "hold"
	doOK               verb = "ok"
	doStatus           verb = "status"
	doSlow             verb = "slow"
	doStream           verb = "stream"
	doSilence          verb = "silence"
	doSSE              verb = "sse"
	doSideband         verb = "sideband"
	doEcho             verb = "echo-stream"
	doGRPCHold         verb = "grpc-hold"
	doTrailers         verb = "trailers"
	doEarlyHints       verb = "103-then-200"
	doCount            verb = "count"
	doChallenge        verb = "challenge401"
	doCloseMid         verb = "close-mid"
	doIgnoreDisconnect verb = "ignores-disconnect"
	doRefuse           verb = "connrefused"
	doGit              verb = "git-http"
)

// part is one verb with its arguments.
type part struct {
	do     verb
	status int           // ok, status
	early  bool          // status: answer before the body is read
	wait   time.Duration // slow, silence, sse, ignores-disconnect
	size   int64         // stream, sideband
	band   string        // sideband: "", progress, keepalive or error
}

// behaviour is what an upstream does with one request, in order. The empty
// behaviour is the upstream's own default.
type behaviour []part

func (b behaviour) has(do verb) bool {
	for _, p := range b {
		if p.do == do {
			return true
		}
	}
	return false
}

// early reports whether the answer comes before the body was read.
func (b behaviour) early() bool {
	return len(b) > 0 && (b[0].early || b[0].do == doEcho || b[0].do == doRefuse || b[0].do == doGit)
}

// streams reports whether the answer goes on until somebody ends it.
func (b behaviour) streams() bool {
	return len(b) > 0 && b[len(b)-1].do == doSSE
}

// parseBehaviour reads "silence:5000,stream:64KiB" and its like.
func parseBehaviour(text string) (behaviour, error) {
	var b behaviour
	for _, word := range strings.Split(text, ",") {
		p, err := parsePart(strings.TrimSpace(word))
		if err != nil {
			return nil, fmt.Errorf("upstream behaviour %q: %w", text, err)
		}
		b = append(b, p)
	}
	return b, nil
}

func parsePart(word string) (part, error) {
	name, arg, hasArg := strings.Cut(word, ":")
	if !hasArg {
		switch verb(name) {
		case doHold, doEcho, doGRPCHold, doTrailers, doEarlyHints, doCount, doChallenge, doCloseMid, doRefuse, doGit:
			return part{do: verb(name)}, nil
		}
		if digits, ok := strings.CutPrefix(name, "ok"); ok {
			return statusPart(doOK, digits)
		}
		return part{}, fmt.Errorf("unknown word %q", word)
	}
	switch verb(name) {
	case doStatus:
		return statusPart(doStatus, arg)
	case doSlow, doSilence, doSSE, doIgnoreDisconnect:
		ms, err := strconv.ParseFloat(strings.TrimSuffix(arg, "ms"), 64)
		if err != nil || ms < 0 {
			return part{}, fmt.Errorf("%q: want milliseconds", word)
		}
		return part{do: verb(name), wait: millis(ms)}, nil
	case doStream:
		size, err := parseSize(arg)
		return part{do: doStream, size: size}, err
	case doSideband:
		return sidebandPart(arg)
	}
	return part{}, fmt.Errorf("unknown word %q", word)
}

// statusPart reads "401", "401-early" or "200-badlogin"; what follows the
// number, other than "early", only says what the answer means.
func statusPart(do verb, arg string) (part, error) {
	digits, note, _ := strings.Cut(arg, "-")
	status, err := strconv.Atoi(digits)
	if err != nil || status < 200 || status > 599 {
		return part{}, fmt.Errorf("%q is no status", arg)
	}
	return part{do: do, status: status, early: note == "early"}, nil
}

// sidebandPart reads "64KiB" (pack data), "progress:500", "keepalive:500"
// (one packet each 500 ms until the next part, three in all) or "error".
func sidebandPart(arg string) (part, error) {
	kind, ms, _ := strings.Cut(arg, ":")
	switch kind {
	case "error":
		return part{do: doSideband, band: kind}, nil
	case "progress", "keepalive":
		n, err := strconv.ParseFloat(strings.TrimSuffix(ms, "ms"), 64)
		if ms != "" && (err != nil || n < 0) {
			return part{}, fmt.Errorf("sideband %q: want milliseconds", arg)
		}
		return part{do: doSideband, band: kind, wait: millis(n)}, nil
	}
	size, err := parseSize(arg)
	if err != nil {
		return part{}, fmt.Errorf("sideband %q: want a size, progress, keepalive or error", arg)
	}
	return part{do: doSideband, size: size}, nil
}
