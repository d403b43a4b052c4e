package outbox

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/tickslot/tickslot/internal/lifecycle"
)

// A listener receives the database's notifications of new messages, if the database supports them.
// Notifications are hints: polling finds a message whose notification is lost.
type listener struct {
	relay *Relay
	heard atomic.Bool
}

// listening reports whether notifications certainly work, because the connection has received one.
func (l *listener) listening() bool { return l.heard.Load() }

// run listens until ctx ends and reconnects after growing pauses.
func (l *listener) run(ctx context.Context) {
	lifecycle.KeepListening(ctx, l.listen, func(err error) {
		l.relay.events.Log(slog.LevelDebug, "outbox: no connection listens: the relay polls instead",
			"err", err)
		l.relay.wake() // the relay may be in a long pause
	})
}

// listen listens on one connection. Behind a PgBouncer in transaction mode, that seems to work, but
// no notification ever arrives. So the listener notifies itself, and trusts the connection only
// once that notification has arrived.
func (l *listener) listen(ctx context.Context) error {
	defer l.heard.Store(false)
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
	return l.relay.store.Listen(ctx, woken)
}
