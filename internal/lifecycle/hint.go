package lifecycle

import (
	"context"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
)

const (
	// coalesceFor is how long a Hint rests after a call. Postgres takes a lock of the whole server
	// for the commit of a NOTIFY, so one for each message would slow others.
	coalesceFor = 10 * time.Millisecond
	// HintTimeout bounds a call of the database that nothing depends on.
	HintTimeout = 5 * time.Second
)

// A Hint calls the database immediately for the first Give, and then once for all that come while
// it rests. No caller waits for it, and nothing depends on it. The zero value is ready for use.
type Hint struct {
	mu      sync.Mutex
	resting bool // or calling
	asked   bool // since it made its call
}

// Give calls call on another goroutine, or once more after the present call.
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
	// Deferred: the application's code in its driver, such as a tracer, may end the goroutine.
	defer func() { time.AfterFunc(coalesceFor, func() { h.rested(call) }) }()
	// A receiver that misses it finds the work at its next poll, so the error does not matter.
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
