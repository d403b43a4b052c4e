// Package kit is the way of package durabletest into package durable, which sets these variables:
// so users have no method that only tests may call.
package kit

import (
	"context"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

var (
	// NewStore returns a *durable.Store.
	NewStore func(s store.Store) any
	// StoreOf returns what is below a *durable.Store or a *durable.Worker.
	StoreOf func(storeOrWorker any) (store.Store, error)
	// Call calls a handler of a *durable.Worker once, on this goroutine, for a durable.Run. It
	// returns a durable.RunResult and, if the run would be queued again, in how long.
	Call func(ctx context.Context, worker, run any) (result any, retryIn time.Duration, err error)
)
