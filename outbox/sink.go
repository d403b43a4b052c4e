package outbox

import (
	"context"

	"github.com/tickslot/tickslot/internal/guard"
)

// A Sink passes messages on. Deliver may be called from several goroutines, at once for different
// keys, and never for two messages of one key. If it returns nil, the message is dispatched. After
// an error it is delivered again, later, unless the error is marked by Permanent. It should return
// soon after its context has ended: then its time is over, or another host delivers.
//
// A message can be delivered more than once, so pass its ID on, or make the effect idempotent.
type Sink interface {
	Deliver(ctx context.Context, d Delivery) error
}

// A Validator is a Sink that knows before the first delivery what is wrong with it, such as an
// empty URL. NewRelay asks it, and returns its error.
type Validator interface {
	Validate() error
}

// validated asks a sink what is wrong with it.
func validated(sink Sink) error {
	if v, ok := sink.(Validator); ok {
		return guard.Call("sink", v.Validate)
	}
	return nil
}

// A SinkFunc is a function that is a Sink.
type SinkFunc func(ctx context.Context, d Delivery) error

// Deliver calls the function.
func (s SinkFunc) Deliver(ctx context.Context, d Delivery) error { return s(ctx, d) }
