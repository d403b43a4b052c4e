package durable

import (
	"context"
	"log/slog"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/loop"
)

// A connection that listens is made again after pauses that grow from the first to the second.
const (
	minListenWait = time.Second
	maxListenWait = time.Minute
)

// A listener wakes the worker when another process has queued runs, if the database has
// notifications. They are hints: a run whose notification is lost is found by polling.
type listener struct {
	store  store.Worker
	events *events
	woken  func()
}

// run listens until ctx ends, and connects again after pauses that grow.
func (l *listener) run(ctx context.Context) {
	wait := minListenWait
	for ctx.Err() == nil {
		began := time.Now()
		err := l.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > maxListenWait {
			wait = minListenWait
		}
		l.events.Log(slog.LevelDebug, "durable: a connection that listens has ended: polls go on", "err", err)
		again := time.NewTimer(loop.Jittered(wait, 0.3))
		select {
		case <-ctx.Done():
		case <-again.C:
		}
		again.Stop()
		wait = min(2*wait, maxListenWait)
	}
}

func (l *listener) listen(ctx context.Context) error {
	return guard.Call("listener", func() error { return l.store.Listen(ctx, l.woken) })
}
