package cases

import (
	"context"
	"fmt"
	"time"
)

// runSteps runs steps in order. A step whose successor counts from its start
// (at_ms) runs beside it; a background step is left running.
func (w *world) runSteps(ctx context.Context, steps []Step, outer bool) error {
	var beside []<-chan error
	previous := time.Now()
	for i := range steps {
		s := &steps[i]
		if s.AtMS > 0 && !pause(ctx, time.Until(previous.Add(millis(s.AtMS)))) {
			return ctx.Err()
		}
		previous = time.Now()
		if i+1 < len(steps) && steps[i+1].AtMS > 0 && !s.Background {
			done := make(chan error, 1)
			go func() { done <- w.runStep(ctx, s, outer) }()
			beside = append(beside, done)
			continue
		}
		err := w.runStep(ctx, s, outer)
		for _, done := range beside {
			if other := <-done; err == nil {
				err = other
			}
		}
		beside = nil
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *world) runStep(ctx context.Context, s *Step, outer bool) error {
	if outer {
		w.trace("%s %s", s.Op, s.Name)
	}
	if err := w.perform(ctx, s, outer); err != nil {
		return fmt.Errorf("step %s %s: %w", s.Op, s.Name, err)
	}
	if outer && s.Name != "" && s.Op != "scrape" && w.gateway.running() {
		w.book.snap(s.Name, w.gateway.take(ctx, false))
	}
	return nil
}

// perform dispatches on the closed set of operations.
func (w *world) perform(ctx context.Context, s *Step, outer bool) error {
	switch s.Op {
	case "req":
		return w.request(ctx, s, outer)
	case "obey_retry_after":
		return w.obeyRetryAfter(ctx, s)
	case "git":
		return w.gitClient(ctx, s)
	case "ws":
		return w.webSocket(ctx, s)
	case "ws_send":
		return w.webSocketSend(ctx, s)
	case "raw":
		return w.raw(ctx, s)
	case "h2_reset_flood", "h2_continuation_flood":
		return w.http2Flood(ctx, s)
	case "h3_resume":
		return w.http3Resume(ctx, s)
	case "loop":
		return w.loop(ctx, s)
	case "release":
		return w.release(ctx, s)
	case "cancel":
		return w.cancel(ctx, s)
	case "upstream":
		return w.changeUpstream(s)
	case "reload", "kill9", "start", "corrupt_state", "disk_full", "disk_free":
		return w.operate(ctx, s)
	case "classify":
		return w.classify(ctx, s)
	case "validate_config":
		return w.validateConfig(ctx, s)
	case "admin":
		return w.admin(ctx, s)
	case "scrape":
		w.book.snap(s.Name, w.gateway.take(ctx, true))
		return nil
	case "wait":
		pause(ctx, millis(s.MS))
		return ctx.Err()
	}
	return fmt.Errorf("unknown step %q", s.Op)
}

func (w *world) loop(ctx context.Context, s *Step) error {
	for range max(1, s.N) {
		if err := w.runSteps(ctx, s.Steps, false); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) changeUpstream(s *Step) error {
	b, err := parseBehaviour(s.Behaviour)
	if err != nil {
		return err
	}
	u := w.ups[s.Name]
	if u == nil {
		return fmt.Errorf("unknown upstream %q", s.Name)
	}
	return u.become(b)
}

// releaseLimit bounds the wait for released requests to end.
const releaseLimit = 10 * time.Second

// release lets held calls finish and waits for the requests behind them.
func (w *world) release(ctx context.Context, s *Step) error {
	w.book.snap(beforeRelease, w.gateway.take(ctx, false))
	w.ledger.release(w.book.roundsOf(), s.Names...)
	ctx, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	for _, name := range s.Names {
		for _, e := range w.book.of(name) {
			select {
			case <-e.done:
			case <-ctx.Done(): // it may be waiting for something else
			}
		}
	}
	pause(ctx, 20*time.Millisecond) // the permit ends after the client has its last byte
	return nil
}

// cancel aborts what is still running of the named steps.
func (w *world) cancel(ctx context.Context, s *Step) error {
	switch s.How {
	case "reset", "fin", "":
	default:
		return fmt.Errorf("unknown how %q", s.How)
	}
	for _, name := range s.Names {
		for _, e := range w.book.of(name) {
			if e.isDone() {
				continue
			}
			for range 50 { // the connection may be on its way
				e.mu.Lock()
				abort := e.abort
				e.mu.Unlock()
				if abort != nil {
					abort(s.How)
					break
				}
				pause(ctx, 2*time.Millisecond)
			}
		}
		for _, socket := range w.book.socketsOf(name) {
			socket.abort(s.How)
		}
	}
	return nil
}

// concludeLimit bounds the wait for requests at the end of a case.
const concludeLimit = 60 * time.Second

// conclude releases everything, waits for what can end, and takes the last
// look 300 ms later.
func (w *world) conclude(ctx context.Context) error {
	w.trace("conclude")
	w.book.snap(beforeRelease, w.gateway.take(ctx, false))
	w.ledger.release(nil)
	deadline, cancel := context.WithTimeout(ctx, concludeLimit)
	defer cancel()
	for _, e := range w.book.all() {
		if e.wire != nil && e.endless() {
			continue
		}
		select {
		case <-e.done:
		case <-deadline.Done():
			return fmt.Errorf("request %s does not end", e.wire.id)
		}
	}
	pause(ctx, 300*time.Millisecond)
	if w.gateway.running() {
		w.end = w.settled(ctx)
	} else {
		w.end = snapshot{err: fmt.Errorf("the gateway is not running: %s", w.gateway.logTail())}
	}
	return nil
}

// freeze ends every client, so that what they saw does not change any more.
func (w *world) freeze() {
	for _, e := range w.book.all() {
		e.change(func() { e.unfinished = !e.isDone() })
	}
	if w.sampler != nil {
		w.sampler.end()
	}
	w.stop()
	deadline := time.After(10 * time.Second)
	for _, e := range w.book.all() {
		select {
		case <-e.done:
		case <-deadline:
			return
		}
	}
}

// endless reports whether the client never ends the exchange by itself.
func (e *exchange) endless() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.header["Content-Type"]) > 0 && e.header["Content-Type"][0] == "text/event-stream"
}

// settled is the state at the end. Work that a request leaves behind by design
// (a delivery on its way) gets a few seconds to finish.
func (w *world) settled(ctx context.Context) snapshot {
	for range 50 {
		s := w.gateway.take(ctx, true)
		if w.expectsBalance() {
			s.balance, s.balanceErr = w.balance(&s)
		}
		if !w.expectsBalance() || s.balanced() || !pause(ctx, 200*time.Millisecond) {
			return s
		}
	}
	return w.gateway.take(ctx, true)
}
