// Package billing represents your own code. It has two timers, a durable run and a message. Its
// tests show how to test yours, and docs/guide.md explains them.
//
//   - memory_test.go: a store in memory and virtual time, in which days pass in a moment. Start
//     there.
//   - handler_test.go: a single handler, without timers.
//   - outage_test.go: your code's behavior when the store is down.
//   - redis_test.go: a Redis inside the test, for behavior that depends on your store.
//   - durable_test.go, outbox_test.go: triggered runs and appended messages, one handler or sink,
//     and all due work in virtual time.
//   - page_test.go: who may read the page.
package billing

import (
	"context"
	"log/slog"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// Jobs is the work itself. It does not use timers, so most of its tests need none.
type Jobs struct {
	SendInvoices func(ctx context.Context, day time.Time) error
	RefreshRates func(ctx context.Context) error
}

const (
	sendInvoices = "send-invoices"
	refreshRates = "refresh-rates"
)

// Timers returns the timers of this package; the caller runs them. The caller also passes the
// store, which makes the timers testable: main passes a redislock.Store, a test a memlock.Store.
func Timers(store dlock.DistributedLock, log *slog.Logger, jobs Jobs) (*timer.Scheduler, error) {
	return timer.New(timer.Config{Store: store, Logger: log},
		timer.Timer{
			Name:        sendInvoices,
			Schedule:    schedule.Every(24 * time.Hour),
			OnStoreDown: timer.StoreDownSkip, // late is better than twice
			Run:         jobs.sendInvoices,
		},
		timer.Timer{
			Name:       refreshRates,
			Schedule:   schedule.Every(time.Hour),
			MaxRunTime: 2 * time.Hour,
			Run:        jobs.RefreshRates, // idempotent, so OnStoreDown may stay StoreDownRunLocal, the default
		},
	)
}

func (j Jobs) sendInvoices(ctx context.Context) error {
	run, _ := timer.RunFromContext(ctx)
	// Not time.Now, because the tick is the same on every host, however late the run starts.
	day := run.Tick()
	if day.IsZero() { // started by Trigger
		day = time.Now()
	}
	return j.SendInvoices(ctx, day)
}
