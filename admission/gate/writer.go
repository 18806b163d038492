package gate

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"
)

// answerPeek is how much of an upstream's answer is held back until the
// question it raises is answered.
const answerPeek = 256 << 10

// writer stands between next and the client. It watches the status and the
// client's progress, swallows what next still writes after the watchdog cut
// the request, and can hold back the start of the answer until it is judged.
//
// A writer belongs to the goroutine that serves the request.
type writer struct {
	http.ResponseWriter
	dog    *watchdog
	status int // first status >= 200, 0 before

	// upload is the request body of an HTTP/1.x request, or nil.
	upload *progressBody

	// Holding. header is next's own header map while the answer is held back;
	// judge is called once, when the answer is complete or held is full.
	holding bool
	header  http.Header
	held    []byte
	judge   func(complete bool)

	// onBegin is called once, before the client sees the final status.
	onBegin func(status int)
	// onStream is called, possibly twice, when the upstream's answer turns the
	// connection into a stream. It returns false when it has answered the client
	// itself; what next still writes is dropped then.
	onStream func() bool
	hijacked bool
	replaced bool

	// abandon is called once when the client is gone; from then on what next
	// writes is counted and dropped. Nil: next learns of it by an error.
	abandon func()
	gone    atomic.Bool
	drained int64
}

func newWriter(w http.ResponseWriter, dog *watchdog) *writer {
	return &writer{ResponseWriter: w, dog: dog}
}

// hold keeps the answer back until judge was called. It must be called before
// next runs.
func (w *writer) hold(judge func(complete bool)) {
	w.holding, w.judge = true, judge
	w.header = w.ResponseWriter.Header().Clone()
	if w.header == nil {
		w.header = http.Header{}
	}
}

// Header returns the header map that next fills.
func (w *writer) Header() http.Header {
	if w.holding {
		return w.header
	}
	return w.ResponseWriter.Header()
}

// started reports whether any part of the final answer reached the client.
func (w *writer) started() bool { return (w.status != 0 && !w.holding) || w.hijacked }

// WriteHeader passes informational answers on at once and notes the final one.
func (w *writer) WriteHeader(status int) {
	if status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	if w.status != 0 {
		return
	}
	if w.dog.cut() != nil {
		return // the gate answers itself
	}
	w.status = status
	w.dog.sawFirstByte()
	if !w.holding {
		w.begin()
	}
}

// begin sends the final status to the client.
func (w *writer) begin() {
	if w.onBegin != nil {
		w.onBegin(w.status)
	}
	if w.onStream != nil && isStream(w.status, w.ResponseWriter.Header()) && !w.onStream() {
		w.replaced = true
		return
	}
	if w.gone.Load() {
		return
	}
	if w.upload != nil && !w.upload.ended.Load() {
		// An answer before the end of an HTTP/1.1 upload ends the connection:
		// net/http would take the rest of a body that somebody wrapped for the
		// next request.
		w.ResponseWriter.Header().Set("Connection", "close")
	}
	w.dog.begin(writing, 0)
	w.ResponseWriter.WriteHeader(w.status)
	w.dog.end(writing, 0)
}

// Write sends b to the client, or keeps it while the answer is held back.
func (w *writer) Write(b []byte) (int, error) {
	if w.status == 0 {
		if cause := w.dog.cut(); cause != nil {
			return 0, cause
		}
		w.WriteHeader(http.StatusOK)
	}
	if w.holding {
		w.held = append(w.held, b...)
		if len(w.held) >= answerPeek {
			w.release(false)
		}
		return len(b), nil
	}
	return w.send(b)
}

func (w *writer) send(b []byte) (int, error) {
	if w.replaced {
		return len(b), nil
	}
	if w.gone.Load() {
		return w.drain(b)
	}
	if cause := w.dog.cut(); cause != nil {
		return 0, cause // every further write would move the deadline that ends this
	}
	w.dog.begin(writing, len(b))
	n, err := w.ResponseWriter.Write(b)
	w.dog.end(writing, n)
	if err != nil && w.abandon != nil {
		if w.leave(); w.gone.Load() {
			return w.drain(b)
		}
	}
	return n, err
}

// leave notes that the client is gone. It may be called from any goroutine. A
// connection that the watchdog cut looks gone too and is not.
func (w *writer) leave() {
	if w.dog.cut() != nil {
		return
	}
	if w.gone.CompareAndSwap(false, true) {
		w.abandon()
	}
}

// drain drops what a gone client would have got.
func (w *writer) drain(b []byte) (int, error) {
	if w.drained += int64(len(b)); w.drained > drainBytes {
		w.dog.cutWith(errDrained)
		return 0, errDrained
	}
	return len(b), nil
}

// release judges the held answer and sends it on. complete says that next
// wrote all of it.
func (w *writer) release(complete bool) {
	if !w.holding {
		return
	}
	if w.judge != nil {
		w.judge(complete)
	}
	w.holding = false
	if w.status == 0 {
		return
	}
	h := w.ResponseWriter.Header()
	for k := range h {
		delete(h, k)
	}
	for k, v := range w.header {
		h[k] = v
	}
	w.begin()
	if len(w.held) > 0 {
		_, _ = w.send(w.held)
		w.held = nil
	}
	if !complete {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
	}
}

// finish sends on what is still held back. An answer that broke off is sent as
// far as it came and not judged.
func (w *writer) finish(whole bool) {
	if !whole {
		w.judge = nil
	}
	w.release(whole)
}

// FlushError flushes to the client; while the answer is held back it does
// nothing.
func (w *writer) FlushError() error {
	if w.status == 0 {
		if cause := w.dog.cut(); cause != nil {
			return cause
		}
		w.WriteHeader(http.StatusOK)
	}
	if w.holding || w.replaced || w.gone.Load() {
		return nil
	}
	w.dog.begin(writing, 0)
	defer w.dog.end(writing, 0)
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush implements http.Flusher.
func (w *writer) Flush() { _ = w.FlushError() }

// Hijack hands the connection over: the request is a stream from here on. A
// refusal of the stream must be written before.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.release(true)
	if !w.replaced && w.onStream != nil {
		w.replaced = !w.onStream()
	}
	if w.replaced {
		return nil, nil, errReplaced
	}
	c, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.hijacked = true
		if w.status == 0 {
			w.status = http.StatusSwitchingProtocols
		}
		w.dog.sawFirstByte()
	}
	return c, rw, err
}

// breakOff ends the handler so that the client sees that its answer is not whole:
// net/http would close a half answer of unknown length as if it were complete.
// Reverse proxies do the same; other handlers only return.
func (w *writer) breakOff() {
	if !w.hijacked && !w.gone.Load() {
		panic(http.ErrAbortHandler)
	}
}

// Unwrap lets http.ResponseController reach the server's writer.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// progressBody reports the client's progress on an upload and knows whether
// all of it was read. Its end stays its end: net/http closes a body once the
// answer begins, and a transport that looks for the end again would take the
// error for a broken upload and cut its connection, in the middle of the answer.
type progressBody struct {
	io.ReadCloser
	dog      *watchdog
	declared int64 // Content-Length; negative: chunked
	read     atomic.Int64
	ended    atomic.Bool
}

func (b *progressBody) Read(p []byte) (int, error) {
	if b.ended.Load() {
		return 0, io.EOF
	}
	b.dog.begin(reading, 0)
	n, err := b.ReadCloser.Read(p)
	b.dog.end(reading, n)
	if total := b.read.Add(int64(n)); err == io.EOF || (b.declared >= 0 && total >= b.declared) {
		b.ended.Store(true)
	}
	return n, err
}
