package outbox

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/tickslot/tickslot/internal/notify"
)

// events tell the log and the user's hooks what happens. Every part may use them, with any mutex
// held: both run on goroutines of their own, because they may block or panic.
type events struct {
	logger *slog.Logger
	hooks  Hooks
	lines  notify.Queue // calls of the logger
	queue  notify.Queue // calls of hooks
	debug  atomic.Bool  // lines at Debug are wanted, as the logger last said
}

func newEvents(c RelayConfig) *events {
	v := &events{logger: c.Logger, hooks: c.Hooks}
	v.debug.Store(true) // the logger has not been asked yet
	v.queue.Panicked = func(hook string, value any, stack []byte) {
		v.log(slog.LevelError, "outbox: a hook panicked", "hook", hook, "panic", value, "stack", string(stack))
	}
	return v
}

// askDebug asks the logger whether lines at Debug are wanted, so that the level can be changed
// while the relay runs.
func (v *events) askDebug() {
	v.lines.Put("Logger", func() { v.debug.Store(v.logger.Enabled(context.Background(), slog.LevelDebug)) })
}

// log logs a line, in the order of the calls.
func (v *events) log(level slog.Level, line string, args ...any) {
	if level > slog.LevelDebug || v.debug.Load() {
		v.lines.Put("Logger", func() { v.logger.Log(context.Background(), level, line, args...) })
	}
}

// tell queues the call of a hook, if there is one.
func tell[T any](v *events, name string, hook func(T), info T) {
	if hook != nil {
		v.queue.Put(name, func() { hook(info) })
	}
}

// close delivers what waits, and returns the hook that does not return; "": none.
func (v *events) close() (stuck string) {
	stuck = v.queue.Close(HookGrace)
	if n := v.queue.Dropped(); n > 0 {
		v.log(slog.LevelWarn, "outbox: hooks are slower than what happens: events were dropped", "dropped", n)
	}
	v.lines.Close(HookGrace)
	return stuck
}
