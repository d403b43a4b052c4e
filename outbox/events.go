package outbox

import "github.com/tickslot/tickslot/internal/notify"

// events writes log lines and calls the user's hooks. Every part may use it while holding any
// mutex.
type events struct {
	*notify.Reporter
	hooks Hooks
}

func newEvents(c RelayConfig) *events {
	return &events{notify.NewReporter("outbox", c.Logger), c.Hooks}
}

// tell queues a call of the hook. It does nothing if the hook is nil.
func tell[T any](v *events, name string, hook func(T), info T) {
	notify.Tell(v.Reporter, name, hook, info)
}
