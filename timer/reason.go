package timer

import (
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/guard"
)

// Reason says why a tick did not start a run, or why a Trigger was refused.
type Reason string

const (
	// This host was late, and either CatchUp does not run the tick or a later tick is tried
	// instead.
	ReasonMissed   Reason = "missed"
	ReasonBlackout Reason = "blackout"  // the tick is in a blackout of its timer or of the scheduler
	ReasonHostFull Reason = "host_full" // MaxPerHost runs are in progress on this host
	ReasonMaxRuns  Reason = "max_runs"  // Config.MaxRuns runs of all timers are in progress on this host
	ReasonFull     Reason = "full"      // MaxConcurrency runs are in progress in the fleet
	// A limit that the timer shares with other timers is full: see Timer.Limits.
	ReasonLimitFull Reason = "limit_full"
	// A limit that the timer shares with other timers has reached its Rate: see Limit.Rate.
	ReasonLimitRate Reason = "limit_rate"
	ReasonTickTaken Reason = "tick_taken" // the tick has already had MaxPerTick starts
	// The tick was due before this host started. It does not count as missed, because no tick of
	// this schedule was claimed before.
	ReasonTickFirst Reason = "tick_first"
	// The tick was due before this host started. It does not count as missed, because a run was in
	// progress at that time, so a host was there and skipped the tick.
	ReasonTickHeld Reason = "tick_held"
	// Another host has claimed a later tick. This host's clock is behind, or its process was
	// suspended.
	ReasonTickLate Reason = "tick_late"
	// With schedule.After: the delay since the last run ended, on this or another host, is not
	// over.
	ReasonTickEarly  Reason = "tick_early"
	ReasonTickAhead  Reason = "tick_ahead" // this host's clock is more than five seconds ahead of the store's
	ReasonQuarantine Reason = "quarantine" // the store restarted and waits until the old leases have ended
	ReasonPaused     Reason = "paused"     // the timer is paused
	// The store did not answer. With StoreDownSkip every tick is then skipped. Otherwise only a
	// missed tick is skipped, because it may have run elsewhere.
	ReasonStoreDown Reason = "store"
	// The store is not set up correctly (dlock.ErrSetup). OnStoreDown does not apply.
	ReasonStoreSetup Reason = "store_setup"
	// The store found a fault in a key of this timer (dlock.ErrFault). OnStoreDown does not apply.
	ReasonStoreFault Reason = "store_fault"
	// This host had 64 calls to the store in flight until the next tick was due. The store is slow,
	// or too many ticks are due at the same time.
	ReasonStoreBusy Reason = "store_busy"
	ReasonRejoining Reason = "rejoining" // the store is back, and runs that continued without it wait for slots
	// The host is shutting down, the timer was removed, or Update has changed its schedule.
	ReasonDraining   Reason = "draining"
	ReasonNotRunning Reason = "not_running" // Trigger was called before or after Run
)

// reasonOf returns the reason that corresponds to an error of the store.
func reasonOf(err error) Reason {
	if no := refusal(err); no != nil {
		return Reason(no.Reason) // the values are the same
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

// refusal returns the store's refusal, or nil if err is nil or of another kind. The methods of a
// store's error may panic. Such an error is not a refusal.
func refusal(err error) (no *dlock.NotAcquiredError) {
	no, _ = guard.As[*dlock.NotAcquiredError](err)
	return no
}
