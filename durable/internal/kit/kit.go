// Package kit lets package durabletest use internals of package durable, which sets these
// variables. So users do not see methods that only tests may call.
package kit

import (
	"context"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

var (
	// NewStore returns a *durable.Store.
	NewStore func(s store.Store) any
	// StoreOf returns the internal store of a *durable.Store or a *durable.Worker.
	StoreOf func(storeOrWorker any) (store.Store, error)
	// Call calls a handler of a *durable.Worker once, on this goroutine, for a durable.Run. It
	// returns a durable.RunResult and, if the run would be queued again, the wait until then.
	Call func(ctx context.Context, worker, run any) (result any, retryIn time.Duration, err error)
)
