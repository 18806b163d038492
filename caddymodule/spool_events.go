package caddymodule

import (
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-admission/gateway/admission/spool"
)

// spoolEvents writes what happens in the spools into the log of the newest
// started configuration, at most one line per kind and interval. A kind is
// (what, hook, reason), from closed sets and the configuration.
var spoolEvents = &spoolLog{kinds: map[spool.Event]*refusalCount{}}

type spoolLog struct {
	logger atomic.Pointer[zap.Logger]

	mu    sync.Mutex
	kinds map[spool.Event]*refusalCount
}

// spoolEventTexts are the lines. Losses and failures are errors.
var spoolEventTexts = map[spool.EventKind]struct {
	text  string
	error bool
}{
	spool.EventDead:       {"delivery set aside as dead", true},
	spool.EventDropped:    {"delivery left the spool undelivered", false},
	spool.EventDiskFailed: {"disk of the spool fails", true},
	spool.EventDiskOK:     {"disk of the spool works again", false},
	spool.EventDown:       {"receiver cannot be reached", false},
	spool.EventUp:         {"receiver can be reached again", false},
	spool.EventDamage:     {"spool has damaged stretches", true},
	spool.EventSetAside:   {"damaged file of the spool set aside", true},
}

// take implements spool.Config.Log.
func (l *spoolLog) take(e spool.Event) {
	count, due := l.count(spool.Event{Kind: e.Kind, Hook: e.Hook, Reason: e.Reason}, max(e.Count, 1))
	if !due {
		return
	}
	fields := []zap.Field{zap.Int("count", count)}
	for _, f := range []struct{ name, value string }{{"hook", e.Hook}, {"reason", e.Reason}, {"id", e.ID}} {
		if f.value != "" {
			fields = append(fields, zap.String(f.name, f.value))
		}
	}
	if e.Err != nil {
		fields = append(fields, zap.Error(e.Err))
	}
	line := spoolEventTexts[e.Kind]
	l.write(line.error, line.text, fields...)
}

// count notes n events of a kind; when a line is due it stands for count.
func (l *spoolLog) count(kind spool.Event, n int) (count int, due bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.kinds[kind]
	if c == nil {
		c = &refusalCount{}
		l.kinds[kind] = c
	}
	c.since += n
	if !c.last.IsZero() && now.Sub(c.last) < refusalInterval {
		return 0, false
	}
	count, c.since, c.last = c.since, 0, now
	return count, true
}

func (l *spoolLog) write(isError bool, text string, fields ...zap.Field) {
	logger := l.logger.Load()
	switch {
	case logger == nil:
	case isError:
		logger.Error(text, fields...)
	default:
		logger.Warn(text, fields...)
	}
}

// opened says what was found in a directory.
func (l *spoolLog) opened(sp *spool.Spool) {
	r := sp.Report()
	if logger := l.logger.Load(); logger != nil {
		logger.Info("spool open", zap.String("dir", sp.Dir()), zap.Int("kept", r.Kept), zap.Int("files", r.Segments),
			zap.Int64("bytes", r.Bytes), zap.Int("damaged", r.Damaged))
	}
}

// closed tells of a spool that could not be closed.
func (l *spoolLog) closed(dir string, err error) {
	if err != nil {
		l.failed("spool not closed", dir, err)
	}
}

func (l *spoolLog) failed(text, dir string, err error) {
	l.write(true, text, zap.String("dir", dir), zap.Error(err))
}

// left warns of deliveries that nobody delivers any more.
func (l *spoolLog) left(sp *spool.Spool) {
	s := sp.Snapshot()
	if s.Due > 0 {
		l.write(false, "deliveries stay in the spool until a configuration names it again",
			zap.String("dir", sp.Dir()), zap.Int("due", s.Due), zap.Int("dead", s.Dead))
	}
}

// moved tells how a move went.
func (l *spoolLog) moved(from, to *spool.Spool, n int, err error) {
	fields := []zap.Field{zap.String("from", from.Dir()), zap.String("to", to.Dir()), zap.Int("deliveries", n)}
	if err != nil {
		l.write(true, "spool not moved, the old directory stays in use; it is tried again", append(fields, zap.Error(err))...)
		return
	}
	s := from.Snapshot()
	l.write(s.Due+s.Dead > 0, "spool moved", append(fields, zap.Int("left_unreadable", s.Due+s.Dead))...)
}
