package gate

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
)

// errReplaced is what a handler gets that wants a connection whose request was
// refused meanwhile.
var errReplaced = errors.New("the answer was replaced by a refusal")

// observer shows the final status and header of an answer to seen, on their way
// to the client, and changes nothing else: flushing, full duplex, trailers,
// hijacking and deadlines reach the server's writer. When seen returns false it
// has answered the client itself, and what the handler still writes is dropped.
//
// An observer belongs to the goroutine that serves the request.
type observer struct {
	http.ResponseWriter
	seen     func(status int, h http.Header) bool
	done     bool
	replaced bool
}

// look calls seen once.
func (o *observer) look(status int) {
	if !o.done {
		o.done = true
		o.replaced = !o.seen(status, o.ResponseWriter.Header())
	}
}

// WriteHeader implements http.ResponseWriter.
func (o *observer) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		o.look(status)
	}
	if !o.replaced {
		o.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (o *observer) Write(b []byte) (int, error) {
	o.look(http.StatusOK)
	if o.replaced {
		return len(b), nil
	}
	return o.ResponseWriter.Write(b)
}

// ReadFrom keeps the server's own way of copying.
func (o *observer) ReadFrom(r io.Reader) (int64, error) {
	o.look(http.StatusOK)
	if o.replaced {
		return io.Copy(io.Discard, r)
	}
	return io.Copy(o.ResponseWriter, r)
}

// FlushError implements what http.ResponseController looks for.
func (o *observer) FlushError() error {
	o.look(http.StatusOK)
	if o.replaced {
		return nil
	}
	return http.NewResponseController(o.ResponseWriter).Flush()
}

// Flush implements http.Flusher.
func (o *observer) Flush() { _ = o.FlushError() }

// Hijack hands the connection over.
func (o *observer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	o.look(http.StatusSwitchingProtocols)
	if o.replaced {
		return nil, nil, errReplaced
	}
	return http.NewResponseController(o.ResponseWriter).Hijack()
}

// Unwrap lets http.ResponseController reach the server's writer.
func (o *observer) Unwrap() http.ResponseWriter { return o.ResponseWriter }
