package billing

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/timer"
)

// A handler is a function, so a test can call it. ContextWithRun gives it a run such as it would
// have in the fleet: here a late one, for the last day of February.
func TestInvoicesAreOfTheTick(t *testing.T) {
	t.Parallel()
	var out mailbox
	jobs := Jobs{SendInvoices: out.send}
	tick := time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC)
	run := timer.ContextWithRun(t.Context(), timer.RunSpec{Timer: sendInvoices, Tick: tick, CaughtUp: true})
	if err := jobs.sendInvoices(run); err != nil {
		t.Fatal(err)
	}
	if got := out.sent(); !slices.Equal(got, []string{"2026-02-28"}) {
		t.Errorf("sent on %v, want the day of the tick", got)
	}
}

// Without a run there is no tick, and nothing panics, so the handler can be called from anywhere.
func TestInvoicesWithoutARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out mailbox
		if err := (Jobs{SendInvoices: out.send}).sendInvoices(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := out.sent(); !slices.Equal(got, []string{"2000-01-01"}) {
			t.Errorf("sent on %v, want today", got)
		}
	})
}
