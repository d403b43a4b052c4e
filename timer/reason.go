package timer

import (
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/guard"
)

// Reason is why a tick did not start a run, or why a Trigger was refused.
type Reason string

const (
	// This host was late, and CatchUp does not run the tick, or a later tick is tried instead.
	ReasonMissed   Reason = "missed"
	ReasonBlackout Reason = "blackout"  // it fell into a blackout of its timer or of the scheduler
	ReasonHostFull Reason = "host_full" // MaxPerHost runs are in progress here
	ReasonMaxRuns  Reason = "max_runs"  // Config.MaxRuns runs are in progress here, of all timers
	ReasonFull     Reason = "full"      // MaxConcurrency runs are in progress in the fleet
	// A limit that the timer shares with others is full: see Timer.Limits.
	ReasonLimitFull Reason = "limit_full"
	// The Rate of a limit that the timer shares with others is reached: see Limit.Rate.
	ReasonLimitRate Reason = "limit_rate"
	ReasonTickTaken Reason = "tick_taken" // the tick has had its MaxPerTick starts
	// The tick came due before this host started. It does not count as missed, because no tick of
	// this schedule was claimed before.
	ReasonTickFirst Reason = "tick_first"
	// The tick came due before this host started. It does not count as missed, because a run was in
	// progress when it came due, so a host was there and skipped it.
	ReasonTickHeld Reason = "tick_held"
	// Another host has claimed a later tick: this host's clock is behind, or its process was
	// stopped.
	ReasonTickLate Reason = "tick_late"
	// With schedule.After: the delay since the last run ended, here or elsewhere, is not over.
	ReasonTickEarly  Reason = "tick_early"
	ReasonTickAhead  Reason = "tick_ahead" // this host's clock is more than five seconds ahead of the store's
	ReasonQuarantine Reason = "quarantine" // the store restarted and waits until old leases have ended
	ReasonPaused     Reason = "paused"     // the timer is paused
	// The store did not answer. With StoreDownSkip every tick is then skipped; otherwise only a
	// tick that was missed, because it may have run elsewhere.
	ReasonStoreDown Reason = "store"
	// The store is not set up correctly (dlock.ErrSetup). OnStoreDown does not matter.
	ReasonStoreSetup Reason = "store_setup"
	// The store found a fault at a key of this timer (dlock.ErrFault). OnStoreDown does not matter.
	ReasonStoreFault Reason = "store_fault"
	// This host had 64 calls to the store in flight until the next tick came due: the store is
	// slow, or too many ticks are due at the same time.
	ReasonStoreBusy Reason = "store_busy"
	ReasonRejoining Reason = "rejoining" // the store is back, and runs that continued without it here wait for slots
	// The host is shutting down, or the timer was removed, or Update has given it another schedule.
	ReasonDraining   Reason = "draining"
	ReasonNotRunning Reason = "not_running" // Trigger was called before Run, or after it
)

// reasonOf returns the reason for an error of the store.
func reasonOf(err error) Reason {
	if no := refusal(err); no != nil {
		return Reason(no.Reason) // they have the same values
	}
	switch {
	case guard.Is(err, dlock.ErrSetup):
		return ReasonStoreSetup
	case guard.Is(err, dlock.ErrFault):
		return ReasonStoreFault
	default:
		return ReasonStoreDown
	}
}

// refusal returns the store's refusal; nil: the error is of another kind, or there is none. The
// methods of an error of the store may panic: such an error is no refusal.
func refusal(err error) (no *dlock.NotAcquiredError) {
	no, _ = guard.As[*dlock.NotAcquiredError](err)
	return no
}
