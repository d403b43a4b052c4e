package dlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
)

// Errors have a readable text, and callers can match them.
//
// Fails when an Is or Unwrap method is removed, or a field is missing from the text.
func TestErrors(t *testing.T) {
	holder := dlock.Holder{Host: "h", PID: 7, ID: "x"}
	for _, c := range []struct {
		err   error
		match error
		text  string
	}{
		{&dlock.NotAcquiredError{Name: "job", Reason: driver.ReasonFull, Slots: 3, Holder: holder,
			HeldFor: 1500 * time.Microsecond, ExpiresIn: time.Second},
			dlock.ErrNotAcquired, "job: not acquired: all 3 slots held, first to end: h/7/x, for 2ms, ends in 1s " +
				"unless extended"},
		{&dlock.NotAcquiredError{Name: "job", Reason: driver.ReasonFull, Holder: holder, HeldFor: time.Second,
			ExpiresIn: time.Second},
			dlock.ErrNotAcquired, "job: not acquired: held by h/7/x for 1s, ends in 1s unless extended"},
		{&dlock.NotAcquiredError{Name: "job", Reason: driver.ReasonFull, Slots: 4, Info: driver.Info{SlotLimit: 3},
			LimitedBy: driver.Cause{By: "ann", Note: "CPU alarm"}}, dlock.ErrNotAcquired,
			"job: not acquired: all 3 slots held (limited to 3 by ann: CPU alarm; 4 in the code)"},
		{&dlock.NotAcquiredError{Name: "job", Reason: driver.ReasonFull, Slots: 4, Info: driver.Info{SlotLimit: 1},
			Holder: holder, HeldFor: time.Second, ExpiresIn: time.Second}, dlock.ErrNotAcquired,
			"job: not acquired: held by h/7/x for 1s, ends in 1s unless extended (limited to 1; 4 in the code)"},
		{&dlock.NotAcquiredError{Name: "job", Reason: driver.ReasonLimitFull, SharedInfo: driver.Info{SlotLimit: 2},
			Shared: driver.SemaphoreSpec{Name: "cpu", Slots: 4}}, dlock.ErrNotAcquired,
			"job: not acquired: all 2 slots of cpu are held (limited to 2; 4 in the code)"},
		{&dlock.NotAcquiredError{Name: "job", Reason: driver.ReasonFull}, dlock.ErrNotAcquired,
			"job: not acquired: held"},
		{&dlock.NotAcquiredError{Name: "job", Reason: driver.ReasonTickTaken}, dlock.ErrNotAcquired,
			"job: not acquired: the tick has had all its starts"},
		{&dlock.NotAcquiredError{Name: "job", Reason: driver.ReasonTickLate}, dlock.ErrNotAcquired,
			"job: not acquired: a later tick has been claimed already"},
		{&dlock.NotAcquiredError{Name: "job", Reason: driver.ReasonTickAhead}, dlock.ErrNotAcquired,
			"job: not acquired: the tick is more than 5s ahead of the store's clock: check the clock of this host"},
		{&dlock.NotAcquiredError{Name: "job", Reason: driver.ReasonQuarantine, ExpiresIn: time.Millisecond},
			dlock.ErrNotAcquired, "job: not acquired: the store restarted and may have lost its leases; it grants " +
				"again in about 1s"},
		{&dlock.NotAcquiredError{Name: "job", Reason: driver.ReasonPaused}, dlock.ErrNotAcquired,
			"job: not acquired: paused"},
		{&dlock.NotAcquiredError{Name: "job"}, dlock.ErrNotAcquired, "job: not acquired: the store gave no reason"},
		{&dlock.StoreError{Op: dlock.StoreOpAcquire, Name: "job", Err: errDown}, errDown,
			"job: acquire: the store failed: the store is down"},
		{&dlock.LostError{Name: "job", Slot: 2}, dlock.ErrLost,
			"job: slot 2: lease lost: it ended before it was renewed"},
		{&dlock.LostError{Name: "job", Slot: 2, Silent: true, Err: errDown}, errDown,
			"job: slot 2: lease lost: the store did not answer the heartbeat in time: the store is down"},
	} {
		if !errors.Is(c.err, c.match) {
			t.Errorf("%v does not match %v", c.err, c.match)
		}
		if got := c.err.Error(); got != c.text {
			t.Errorf("got  %s\nwant %s", got, c.text)
		}
	}
	if got := (dlock.Holder{}).String(); got != "unknown" {
		t.Errorf("the zero Holder is %q", got)
	}
	if a, b := dlock.NewHolder(), dlock.NewHolder(); a == b || a.Host == "" || a.PID == 0 || len(a.ID) != 8 {
		t.Errorf("%v and %v: want two holders that differ", a, b)
	}
}
