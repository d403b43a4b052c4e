package billing

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer"
)

const day = 24 * time.Hour

// Inside synctest.Test all time is virtual: when every goroutine of the test waits, the clock jumps
// to the next event, so time.Sleep returns at once. tickslot has no clock of its own to fake, and
// memlock's leases expire by the same clock. The bubble begins at midnight, 1 January 2000 UTC.
func TestOneInvoiceADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out mailbox
		startHost(t, memlock.New(), Jobs{SendInvoices: out.send, RefreshRates: noRates})

		time.Sleep(2 * day) // exact, and takes a moment
		synctest.Wait()     // until everything that was due is done

		want := []string{"2000-01-01", "2000-01-02"}
		if got := out.sent(); !slices.Equal(got, want) {
			t.Errorf("sent on %v, want %v", got, want)
		}
	})
}

// Schedulers that share a store form a fleet, in one process as on many machines.
func TestTwoHostsSendOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out mailbox
		store := memlock.New()
		a := startHost(t, store, Jobs{SendInvoices: out.send, RefreshRates: noRates})
		b := startHost(t, store, Jobs{SendInvoices: out.send, RefreshRates: noRates})

		time.Sleep(2 * day)
		synctest.Wait()

		if got := out.sent(); len(got) != 2 || len(slices.Compact(got)) != 2 {
			t.Errorf("sent on %v, want each of two days once", got)
		}
		// Which host ran a tick is random. But each tick either ran here or was skipped for a
		// reason.
		sa, sb := statusOf(t, a, sendInvoices), statusOf(t, b, sendInvoices)
		if sa.Ticks != 2 || sb.Ticks != 2 {
			t.Errorf("%d and %d ticks came due, want 2 on each host", sa.Ticks, sb.Ticks)
		}
		started := sa.Started + sb.Started
		skipped := sa.Skipped[timer.ReasonTickTaken] + sb.Skipped[timer.ReasonTickTaken]
		if started != 2 || skipped != 2 {
			t.Errorf("%d started, %d skipped because the other host had run them; want 2 and 2", started, skipped)
		}
	})
}

// An error is logged and counted, and the next tick runs as usual. Without Retry, the run is not
// repeated.
func TestAFailedRunIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errMailServer := errors.New("the mail server is down")
		var calls atomic.Int32
		host := startHost(t, memlock.New(), Jobs{RefreshRates: noRates,
			SendInvoices: func(context.Context, time.Time) error {
				if calls.Add(1) == 1 {
					return errMailServer
				}
				return nil
			}})

		time.Sleep(day)
		synctest.Wait()
		if last := statusOf(t, host, sendInvoices).Last; last == nil || last.Outcome != timer.OutcomeFailed ||
			!errors.Is(last.Err, errMailServer) {
			t.Errorf("the first day ended as %+v, want %v", last, errMailServer)
		}

		time.Sleep(day)
		synctest.Wait()
		if last := statusOf(t, host, sendInvoices).Last; last.Outcome != timer.OutcomeOK || calls.Load() != 2 {
			t.Errorf("the second day ended as %+v after %d calls, want ok after 2", last, calls.Load())
		}
	})
}

// A run takes longer than its period, so the ticks that come due meanwhile are skipped on every
// host.
func TestSlowRatesDoNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, overlaps atomic.Int32
		slow := func(ctx context.Context) error {
			if running.Add(1) > 1 {
				overlaps.Add(1)
			}
			defer running.Add(-1)
			select {
			case <-time.After(90 * time.Minute):
				return nil
			case <-ctx.Done(): // otherwise the test, like your service, would have to wait for it
				return context.Cause(ctx)
			}
		}
		store := memlock.New()
		a := startHost(t, store, Jobs{SendInvoices: noInvoices, RefreshRates: slow})
		b := startHost(t, store, Jobs{SendInvoices: noInvoices, RefreshRates: slow})

		time.Sleep(6 * time.Hour)
		synctest.Wait()
		if n := overlaps.Load(); n != 0 {
			t.Errorf("%d runs began while another one went on", n)
		}
		sa, sb := statusOf(t, a, refreshRates), statusOf(t, b, refreshRates)
		if n := sa.Started + sb.Started; n != 3 {
			t.Errorf("%d of 6 ticks ran, want every other one", n)
		}
		// The host with the run knows that itself; the other host learns it from the store.
		if n := sa.Skipped[timer.ReasonHostFull] + sb.Skipped[timer.ReasonHostFull]; n != 3 {
			t.Errorf("%d ticks were skipped because of the run on the same host, want 3", n)
		}
		if n := sa.Skipped[timer.ReasonFull] + sb.Skipped[timer.ReasonFull]; n != 3 {
			t.Errorf("%d ticks were skipped because of the run on the other host, want 3", n)
		}
	})
}
