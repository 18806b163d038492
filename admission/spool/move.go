package spool

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"sync"
)

// open spools of this process by directory, with their users.
var inUse = struct {
	sync.Mutex
	spools map[string]*shared
}{spools: map[string]*shared{}}

type shared struct {
	spool *Spool
	users int
}

// Use returns the spool of c.Dir that this process has open, or opens it, so
// that a new configuration goes on with the spool of the old one. Limits of
// an open spool stay as they are until SetLimits. release gives the spool
// back, once; the last one closes it.
func Use(c Config) (s *Spool, release func() error, err error) {
	dir := filepath.Clean(c.Dir)
	inUse.Lock()
	defer inUse.Unlock()
	u := inUse.spools[dir]
	if u == nil {
		if s, err = Open(c); err != nil {
			return nil, nil, err
		}
		u = &shared{spool: s}
		inUse.spools[dir] = u
	}
	u.users++
	return u.spool, sync.OnceValue(func() error { return u.leave(dir) }), nil
}

func (u *shared) leave(dir string) error {
	inUse.Lock()
	defer inUse.Unlock()
	if u.users--; u.users > 0 {
		return nil
	}
	delete(inUse.spools, dir)
	return u.spool.Close()
}

// Adopt moves everything that another spool keeps into this one, in order and
// with its state, and returns how many deliveries that were. Each is durable
// here before it leaves there, so a crash in between leaves it in both and
// its receiver may see it twice. Stop the other's hooks first and set this
// one's hooks afterwards, or new deliveries overtake old ones. Nothing moves
// when not everything fits; a repository's share is not asked again. On
// another error (this spool's disk fails, ctx ends) the rest stays where it
// was, and a later call goes on.
// Deliveries that cannot be read stay there too, without an error.
func (s *Spool) Adopt(ctx context.Context, from *Spool) (n int, err error) {
	from.mu.Lock()
	all := slices.Sorted(maps.Keys(from.entries))
	bytes := from.bytes
	from.mu.Unlock()
	if err := s.fits(bytes, len(all)); err != nil {
		return 0, err
	}
	for _, seq := range all {
		moved, err := s.adopt(ctx, from, seq)
		if err != nil {
			return n, err
		}
		if moved {
			n++
		}
	}
	return n, nil
}

// fits reports whether so much can be kept beside what is.
func (s *Spool) fits(bytes int64, count int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch maxBytes, maxCount := s.cfg.maxBytes(), s.cfg.maxCount(); {
	case s.bytes+bytes > maxBytes:
		return &FullError{BoundBytes, maxBytes}
	case s.count+count > maxCount:
		return &FullError{BoundCount, int64(maxCount)}
	}
	return nil
}

func (s *Spool) adopt(ctx context.Context, from *Spool, seq uint64) (bool, error) {
	w, err := from.repack(seq, s.sealer)
	switch {
	case is[*DiskError](err), errors.Is(err, ErrNotFound), errors.Is(err, ErrCorrupt), errors.Is(err, ErrNoKey):
		return false, nil
	case err != nil:
		return false, err
	}
	s.mu.Lock()
	w, err = s.enqueueLocked(w)
	s.unlockAndTell()
	if err == nil {
		err = s.await(ctx, w)
	}
	if err != nil {
		return false, err
	}
	from.mu.Lock()
	if e := from.entries[seq]; e != nil { // an operator may have dropped it meanwhile
		from.dropLocked(e, DropMoved)
	}
	from.unlockAndTell()
	return true, nil
}

// repack makes a write of a kept delivery for another spool's key.
func (s *Spool) repack(seq uint64, to *sealer) (*write, error) {
	f, h, text, off, err := s.readEntry(seq)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	body, err := readBody(f, off, &h)
	if err != nil {
		return nil, err
	}
	if len(text.Sealed) > 0 {
		secret, err := s.sealer.open(text.Sealed, text.Hook)
		if err != nil {
			return nil, err
		}
		if text.Sealed, err = to.seal(secret, text.Hook); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	if e := s.entries[seq]; e != nil {
		text.state = e.state
	}
	s.mu.Unlock()
	encoded, err := text.encode()
	if err != nil {
		return nil, err
	}
	w := &write{kind: recordKeep, facts: encoded, body: body, wait: true, done: make(chan struct{})}
	w.entry = newEntry(0, text, int64(len(body)), w.size())
	w.entry.moved = true
	return w, nil
}
