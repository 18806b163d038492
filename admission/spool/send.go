package spool

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
)

// send makes one attempt at a kept delivery, read from its record. Bodies up
// to joinBody are read once into memory; larger ones are checked first and
// then streamed from the file.
func (s *Spool) send(ctx context.Context, e *entry, r *receiver, c *HookConfig) result {
	f, h, fs, off, err := s.readEntry(e.seq)
	if err == nil {
		defer f.Close()
	}
	var body func() io.Reader
	if err == nil {
		body, err = checkedBody(f, off, &h)
	}
	var sent *secrets
	if err == nil {
		sent, err = s.sealer.open(fs.Sealed, fs.Hook)
	}
	if err != nil {
		return unreadable(err)
	}
	m := &message{
		header: join(fs.Header, sent.Header, fs.Restored, c.Restore),
		path:   fs.Path, query: sent.Query, size: int64(h.body), body: body,
	}
	return r.post(ctx, m, c.Status)
}

// unreadable is the result for a record that cannot be used. A disk that
// cannot be read now may be readable later.
func unreadable(err error) result {
	switch {
	case errors.Is(err, ErrCorrupt):
		return result{outcome: outcomeNever, failure: "corrupt", dead: DeadCorrupt}
	case errors.Is(err, ErrNoKey):
		return result{outcome: outcomeNever, failure: "no key", dead: DeadNoKey}
	case errors.Is(err, ErrNotFound):
		return result{outcome: outcomeStopped, failure: "stopped"}
	}
	return result{outcome: outcomeAgain, failure: "disk"}
}

// readEntry opens the file of an entry's record and reads its facts. The file
// may be cleaned away at any moment, the entry then stands elsewhere.
func (s *Spool) readEntry(seq uint64) (f File, h recordHead, text *facts, off int64, err error) {
	for range 8 {
		s.mu.Lock()
		e := s.entries[seq]
		if e == nil {
			s.mu.Unlock()
			return nil, h, nil, 0, ErrNotFound
		}
		at := e.at
		s.mu.Unlock()
		f, err = s.disk.Open(at.seg.name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, h, nil, 0, diskError("open", err)
		}
		h, text, err = readRecord(f, at.off, at.seg)
		if err != nil {
			_ = f.Close()
			return nil, h, nil, 0, err
		}
		return f, h, text, at.off, nil
	}
	return nil, h, nil, 0, diskError("open", err)
}

// checkedBody returns a way to read a body that matches its sum.
func checkedBody(f File, off int64, h *recordHead) (func() io.Reader, error) {
	if h.body > joinBody {
		if ok, err := bodySound(f, off, h); err != nil {
			return nil, err
		} else if !ok {
			return nil, ErrCorrupt
		}
		head := *h
		return func() io.Reader { return bodyReader(f, off, &head) }, nil
	}
	b, err := readBody(f, off, h)
	if err != nil {
		return nil, err
	}
	return func() io.Reader { return bytes.NewReader(b) }, nil
}

// readBody reads a whole body and checks it.
func readBody(f File, off int64, h *recordHead) ([]byte, error) {
	b := make([]byte, h.body)
	if _, err := io.ReadFull(bodyReader(f, off, h), b); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, ErrCorrupt
	} else if err != nil {
		return nil, diskError("read", err)
	}
	if newRecordHead(h.kind, h.seq, nil, b).bodySum != h.bodySum {
		return nil, ErrCorrupt
	}
	return b, nil
}

// join makes the header of an attempt.
func join(plain, secret http.Header, restored []string, known map[string]string) http.Header {
	h := make(http.Header, len(plain)+len(secret)+len(restored))
	for name, values := range plain {
		h[name] = values
	}
	for name, values := range secret {
		h[name] = values
	}
	for _, name := range restored {
		if v, ok := known[name]; ok {
			h[name] = []string{v}
		}
	}
	return h
}
