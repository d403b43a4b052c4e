package outbox

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/loop"
)

// A connection that listens is made again after pauses that grow from the first to the second.
const (
	minListenWait = time.Second
	maxListenWait = time.Minute
)

// A listener hears from the database when there are new messages, if the database can tell. It is a
// hint: a message whose notification was lost is found by polling.
type listener struct {
	relay *Relay
	heard atomic.Bool
}

// hears reports whether the database surely tells: the connection has heard a notification.
func (l *listener) hears() bool { return l.heard.Load() }

// run listens until ctx ends, and connects again after pauses that grow.
func (l *listener) run(ctx context.Context) {
	wait := minListenWait
	for ctx.Err() == nil {
		began := time.Now()
		err := l.listen(ctx)
		l.heard.Store(false)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > maxListenWait {
			wait = minListenWait
		}
		l.relay.events.Log(slog.LevelDebug, "outbox: no connection listens: the relay looks for messages instead",
			"err", err)
		l.relay.wake() // it may be in the middle of a long pause
		if !sleep(ctx, loop.Jittered(wait, 0.3)) {
			return
		}
		wait = min(2*wait, maxListenWait)
	}
}

// listen listens on one connection. Behind a PgBouncer in transaction mode that seems to work, but
// nothing is ever heard. So it notifies itself, and believes in the connection when it has heard
// that.
func (l *listener) listen(ctx context.Context) error {
	var connected atomic.Bool // the function below may be called concurrently
	woken := func() {
		l.relay.wake()
		if connected.Swap(true) {
			l.heard.Store(true)
			return
		}
		go func() {
			ctx, cancel := context.WithTimeout(ctx, l.relay.config.CallTimeout)
			defer cancel()
			_ = l.relay.store.Notify(ctx)
		}()
	}
	return guard.Call("listener", func() error { return l.relay.store.Listen(ctx, woken) })
}
