package durable

import (
	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/internal/notify"
)

// events writes log lines and calls the user's hooks. Every part may use it while holding any
// mutex.
type events struct {
	*notify.Reporter
	hooks Hooks
}

func newEvents(c Config) *events {
	return &events{notify.NewReporter("durable", mask.Logger(c.Logger)), c.Hooks}
}

// tell queues a call of the hook. It does nothing if the hook is nil.
func tell[T any](v *events, name string, hook func(T), info T) {
	notify.Tell(v.Reporter, name, hook, info)
}

// line returns the attributes that begin every log line about an attempt, followed by more.
func (r RunInfo) line(more ...any) []any {
	args := append(make([]any, 0, 10+len(more)), "run", r.ID, "handler", r.Handler)
	if r.Schedule != "" {
		args = append(args, "schedule", r.Schedule, "due_at", r.DueAt)
	}
	args = append(args, "attempt", r.Attempt, "worker", r.Worker)
	return append(args, more...)
}
