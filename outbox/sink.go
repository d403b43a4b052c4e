package outbox

import (
	"context"

	"github.com/tickslot/tickslot/internal/guard"
)

// A Sink passes messages on. Deliver is called from several goroutines, at the same time for
// different keys but never for two messages of one key. If it returns nil, the message is
// dispatched. After an error that Permanent has not marked, the message is delivered again later.
// Deliver should return soon after its context has ended, because its time is over or another host
// delivers.
//
// A message can be delivered more than once, so pass on its ID, or make the effect idempotent.
type Sink interface {
	Deliver(ctx context.Context, d Delivery) error
}

// A Validator is a Sink that can find its own faults before the first delivery, such as an empty
// URL. NewRelay calls Validate and returns its error.
type Validator interface {
	Validate() error
}

// validated returns the fault of a sink that is a Validator.
func validated(sink Sink) error {
	if v, ok := sink.(Validator); ok {
		return guard.Call("sink", v.Validate)
	}
	return nil
}

// A SinkFunc makes a function a Sink.
type SinkFunc func(ctx context.Context, d Delivery) error

// Deliver calls the function.
func (s SinkFunc) Deliver(ctx context.Context, d Delivery) error { return s(ctx, d) }
