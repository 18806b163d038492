package caddymodule

import (
	"context"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-admission/gateway/admission/gate"
)

// refusalInterval is the time between two lines about one kind of refusal.
const refusalInterval = 10 * time.Second

// refusalLog writes at most one line per kind of refusal and interval, with
// the number of refusals it stands for. A kind is (pool, class, reason, dry
// run), all from closed sets, so the table is bounded. Safe for concurrent use.
type refusalLog struct {
	logger *zap.Logger
	now    func() time.Time

	mu    sync.Mutex // protects kinds; logging happens after unlocking
	kinds map[refusalKind]*refusalCount
}

type refusalKind struct {
	pool, class, reason string
	would               bool
}

type refusalCount struct {
	last  time.Time // of the last line
	since int       // refusals after it
}

func newRefusalLog(logger *zap.Logger) *refusalLog {
	return &refusalLog{logger: logger, now: time.Now, kinds: map[refusalKind]*refusalCount{}}
}

// sink returns the gate's log for one pool.
func (l *refusalLog) sink(pool string) func(gate.Event) {
	return func(e gate.Event) {
		l.write(refusalKind{pool, e.Class.String(), e.Reason, e.Would},
			zap.Int("status", e.Status), zap.Duration("retry_after", e.Retry))
	}
}

// dryRunOnly is sink without the refusals, for handlers that log those
// themselves.
func (l *refusalLog) dryRunOnly(pool string) func(gate.Event) {
	sink := l.sink(pool)
	return func(e gate.Event) {
		if e.Would {
			sink(e)
		}
	}
}

// write notes a refusal and logs it when a line of its kind is due.
func (l *refusalLog) write(kind refusalKind, fields ...zap.Field) {
	count, due := l.count(kind)
	if !due {
		return
	}
	message := "refused"
	if kind.would {
		message = "would refuse"
	}
	l.logger.Warn(message, append([]zap.Field{
		zap.String("pool", kind.pool),
		zap.String("class", kind.class),
		zap.String("reason", kind.reason),
		zap.Int("count", count),
	}, fields...)...)
}

// count notes one refusal. When a line is due it stands for count refusals:
// this one and those since the line before.
func (l *refusalLog) count(kind refusalKind) (count int, due bool) {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.kinds[kind]
	if c == nil {
		c = &refusalCount{}
		l.kinds[kind] = c
	}
	c.since++
	if !c.last.IsZero() && now.Sub(c.last) < refusalInterval {
		return 0, false
	}
	count, c.since, c.last = c.since, 0, now
	return count, true
}

// exitWatcher shuts the pools of a generation when the process ends.
type exitWatcher struct{ gen *generation }

// Handle implements caddyevents.Handler.
func (x exitWatcher) Handle(context.Context, caddy.Event) error {
	if caddy.Exiting() {
		process.shutdown(x.gen)
	}
	return nil
}
