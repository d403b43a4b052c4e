package billing

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer"
)

// A dlocktest.Faulty sits between a host and its store and makes calls fail. Each host has its own,
// so a test can cut off each one separately.
func TestHostThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out mailbox
		var rates atomic.Int32
		jobs := Jobs{SendInvoices: out.send, RefreshRates: func(context.Context) error { rates.Add(1); return nil }}
		store := memlock.New()
		link := dlocktest.NewFaulty(store)
		link.Inject(dlocktest.Hang) // the worst failure: no error, no answer
		cutOff := startHost(t, link, jobs)
		startHost(t, store, jobs)

		time.Sleep(day)
		synctest.Wait()
		if sent := out.sent(); len(sent) != 1 {
			t.Errorf("sent on %v: invoices must go out once, from the other host", sent)
		}
		if n := statusOf(t, cutOff, sendInvoices).Skipped[timer.ReasonStoreDown]; n != 1 {
			t.Errorf("%d ticks skipped because the store was down, want 1", n)
		}
		if n := rates.Load(); n != 2*24 { // StoreDownRunLocal: each host runs alone
			t.Errorf("rates were refreshed %d times on a day, want once an hour on each host", n)
		}
		if cutOff.StoreReachable() == nil || cutOff.Ready() != nil {
			t.Error("a host without its store is degraded, but ready")
		}

		link.Heal()
		time.Sleep(day)
		synctest.Wait()
		if sent := out.sent(); len(sent) != 2 {
			t.Errorf("sent on %v: a host that is back must not send again", sent)
		}
		if err := cutOff.StoreReachable(); err != nil {
			t.Errorf("the store is back, and still: %v", err)
		}
	})
}

// The store fails during a run. With timer.StoreDownSkip, the run's context ends before the store
// could give the slot to another host. Make sure that your handlers observe their context.
func TestInvoicesStopWhenTheLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := make(chan struct{}, 1)
		var stopped error
		endless := func(ctx context.Context, _ time.Time) error {
			began <- struct{}{}
			<-ctx.Done()
			stopped = context.Cause(ctx)
			return stopped
		}
		link := dlocktest.NewFaulty(memlock.New())
		host := startHost(t, link, Jobs{SendInvoices: endless, RefreshRates: noRates})

		<-began
		time.Sleep(10 * time.Minute) // a heartbeat keeps the slot all this time
		synctest.Wait()
		if stopped != nil {
			t.Fatalf("stopped although the store answered: %v", stopped)
		}

		link.Inject(dlocktest.Hang)
		time.Sleep(dlock.DefaultTTL)
		synctest.Wait()
		if !errors.Is(stopped, dlock.ErrLost) {
			t.Errorf("stopped: %v, want %v within a TTL", stopped, dlock.ErrLost)
		}
		if last := statusOf(t, host, sendInvoices).Last; last == nil || last.Outcome != timer.OutcomeLeaseLost {
			t.Errorf("the run ended as %+v, want %v", last, timer.OutcomeLeaseLost)
		}
	})
}
