package outbox

import "github.com/tickslot/tickslot/internal/notify"

// events writes log lines and calls the user's hooks. Every part may use it, with any mutex held.
type events struct {
	*notify.Reporter
	hooks Hooks
}

func newEvents(c RelayConfig) *events {
	return &events{notify.NewReporter("outbox", c.Logger), c.Hooks}
}

// tell queues the call of a hook, if there is one.
func tell[T any](v *events, name string, hook func(T), info T) {
	notify.Tell(v.Reporter, name, hook, info)
}
