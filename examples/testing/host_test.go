package billing

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/timer"
)

// startHost runs the timers like one process of the fleet, until the test ends.
func startHost(t *testing.T, store dlock.DistributedLock, jobs Jobs) *timer.Scheduler {
	t.Helper()
	timers, err := Timers(store, slog.New(slog.DiscardHandler), jobs)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- timers.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil { // names handlers that ignore their context
			t.Error(err)
		}
	})
	return timers
}

// statusOf returns what a host knows about one timer. Status reads memory only, so it is cheap.
func statusOf(t *testing.T, timers *timer.Scheduler, name string) timer.TimerStatus {
	t.Helper()
	all := timers.Status().Timers
	i := slices.IndexFunc(all, func(s timer.TimerStatus) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no timer %q", name)
	}
	return all[i]
}

// A mailbox records the days for which invoices were sent.
type mailbox struct {
	mu   sync.Mutex
	days []string
}

func (o *mailbox) send(_ context.Context, day time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.days = append(o.days, day.Format(time.DateOnly))
	return nil
}

func (o *mailbox) sent() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.days)
}

func noInvoices(context.Context, time.Time) error { return nil }
func noRates(context.Context) error               { return nil }
