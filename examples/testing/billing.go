// Package billing stands for your own code: it has two timers. What it is here for are its tests,
// which show how to test timers of yours.
//
//   - memory_test.go: with a store in memory and virtual time, in which days pass in a moment. Start there.
//   - outage_test.go: what your code does when the store is down.
//   - redis_test.go: with a Redis inside the test, for what depends on the store that you use.
package billing

import (
	"context"
	"log/slog"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// Jobs is the work itself. It knows nothing of timers, so most of its tests need none.
type Jobs struct {
	SendInvoices func(ctx context.Context, day time.Time) error
	RefreshRates func(ctx context.Context) error
}

const (
	sendInvoices = "send-invoices"
	refreshRates = "refresh-rates"
)

// Timers returns the timers of this package, not yet running. That the caller passes the store is
// what makes them testable: main passes redislock, a test memlock.
func Timers(lock dlock.DistributedLock, log *slog.Logger, jobs Jobs) (*timer.Scheduler, error) {
	return timer.New(timer.Config{Lock: lock, Logger: log},
		timer.Timer{
			Name:        sendInvoices,
			Schedule:    schedule.Every(24 * time.Hour),
			OnStoreDown: timer.StoreDownSkip, // rather late than twice
			Run: func(ctx context.Context) error {
				run, _ := timer.RunFromContext(ctx)
				day := run.Tick() // not time.Now: the tick is the same on every host, and whenever the run starts
				if day.IsZero() {
					day = time.Now() // started by Trigger
				}
				return jobs.SendInvoices(ctx, day)
			},
		},
		timer.Timer{
			Name:       refreshRates,
			Schedule:   schedule.Every(time.Hour),
			MaxRunTime: 2 * time.Hour,
			Run:        jobs.RefreshRates, // twice does no harm, so OnStoreDown may be StoreDownRunLocal, the default
		},
	)
}
