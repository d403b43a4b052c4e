package lifecycle

import (
	"context"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
)

const (
	// coalesceFor is how long a Hint rests after a call. Postgres takes a server-wide lock to
	// commit a NOTIFY, so one NOTIFY per message would slow down other sessions.
	coalesceFor = 10 * time.Millisecond
	// HintTimeout bounds a database call whose success is not required.
	HintTimeout = 5 * time.Second
)

// A Hint calls the database immediately for the first Give, and then once for all that follow while
// it rests. No caller waits for it, and nothing depends on its success. The zero value is ready for
// use.
type Hint struct {
	mu      sync.Mutex
	resting bool // also set during a call
	asked   bool // Give was called since the last call began
}

// Give calls call on another goroutine. If a call is in progress, one more follows it.
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
	// Deferred, because the application's code in its driver, such as a tracer, may end the
	// goroutine.
	defer func() { time.AfterFunc(coalesceFor, func() { h.rested(call) }) }()
	// The error does not matter: a receiver that misses the hint finds the work at its next poll.
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
