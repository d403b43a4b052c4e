package lifecycle

import (
	"context"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
)

const (
	// coalesceFor is how long a Hint rests after a call. Postgres takes a lock of the whole server
	// for the commit of a NOTIFY, so one for each message would be felt.
	coalesceFor = 10 * time.Millisecond
	// HintTimeout bounds a call of the database that nothing depends on.
	HintTimeout = 5 * time.Second
)

// A Hint calls the database at once for the first Give, and then once for all that come while it
// rests. Nobody waits for it, and nothing depends on it. The zero value is ready for use.
type Hint struct {
	mu      sync.Mutex
	resting bool // or calling
	asked   bool // since it made its call
}

// Give has call called on another goroutine.
func (h *Hint) Give(call func(context.Context) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.resting {
		h.asked = true
		return
	}
	h.resting = true
	go h.call(call)
}

func (h *Hint) call(call func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), HintTimeout)
	defer cancel()
	// Deferred: what the application has in its driver, such as a tracer, may end the goroutine.
	defer func() { time.AfterFunc(coalesceFor, func() { h.rested(call) }) }()
	// Who misses it finds what there is when it next looks, so its error is of no use.
	_ = guard.Call("database", func() error { return call(ctx) })
}

func (h *Hint) rested(call func(context.Context) error) {
	h.mu.Lock()
	again := h.asked
	h.resting, h.asked = again, false
	h.mu.Unlock()
	if again {
		h.call(call)
	}
}
