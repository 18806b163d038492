package gate

import (
	"mime"
	"net/http"
)

// isStream reports whether the upstream's own answer makes the request a
// stream: a protocol switch, server-sent events or gRPC. What the client asks
// for is never a reason.
func isStream(status int, h http.Header) bool {
	if status == http.StatusSwitchingProtocols {
		return true
	}
	if status < 200 || status > 299 {
		return false
	}
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return false
	}
	switch t {
	case "text/event-stream", "application/grpc", "application/grpc+proto", "application/grpc+json":
		return true
	}
	return false
}
