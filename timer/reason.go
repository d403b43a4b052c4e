package timer

import (
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/guard"
)

// Reason is why a tick did not start a run, or why a Trigger was refused.
type Reason string

const (
	// This host was late, and CatchUp does not run the tick, or a later one is tried.
	ReasonMissed   Reason = "missed"
	ReasonBlackout Reason = "blackout"  // it fell into a blackout of its timer or of the scheduler
	ReasonHostFull Reason = "host_full" // MaxPerHost runs go on here
	ReasonMaxRuns  Reason = "max_runs"  // Config.MaxRuns runs go on here, of all timers
	ReasonFull     Reason = "full"      // MaxConcurrency runs go on in the fleet
	// A limit that the timer shares with others is full: see Timer.Limits.
	ReasonLimitFull Reason = "limit_full"
	// The rate of such a limit is reached: see Limit.Rate.
	ReasonLimitRate Reason = "limit_rate"
	ReasonTickTaken Reason = "tick_taken" // the tick has had its MaxPerTick starts
	// A tick before this host's start that was not missed: no tick of this schedule was claimed
	// before.
	ReasonTickFirst Reason = "tick_first"
	// A tick before this host's start that was not missed: a run went on when it came due, so a
	// host was there and skipped it.
	ReasonTickHeld Reason = "tick_held"
	// Another host has claimed a later tick: this host's clock is behind, or its process was
	// stopped.
	ReasonTickLate Reason = "tick_late"
	// With schedule.After: the delay since the last run ended, here or elsewhere, is not over.
	ReasonTickEarly  Reason = "tick_early"
	ReasonTickAhead  Reason = "tick_ahead" // this host's clock is more than five seconds ahead of the store's
	ReasonQuarantine Reason = "quarantine" // the store restarted and waits until old leases have ended
	ReasonPaused     Reason = "paused"     // somebody paused the timer
	// The store did not answer, and OnStoreDown is StoreDownSkip, or the tick was missed and may
	// have run elsewhere.
	ReasonStoreDown Reason = "store"
	// The store is not set up right (dlock.ErrSetup), whatever OnStoreDown says.
	ReasonStoreSetup Reason = "store_setup"
	// The store found a fault at a key of this timer (dlock.ErrFault), whatever OnStoreDown says.
	ReasonStoreFault Reason = "store_fault"
	// This host had 64 calls to the store in flight until the next tick came due: the store is
	// slow, or too many ticks are due at once.
	ReasonStoreBusy Reason = "store_busy"
	ReasonRejoining Reason = "rejoining" // the store is back, and runs of the outage here wait for slots
	// The host is shutting down, or the timer was removed, or Update has given it another schedule.
	ReasonDraining   Reason = "draining"
	ReasonNotRunning Reason = "not_running" // Trigger before Run, or after it
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

// refusal returns the store's refusal; nil: the error is another, or there is none. The methods of
// an error of the store may panic: such an error is no refusal.
func refusal(err error) (no *dlock.NotAcquiredError) {
	no, _ = guard.As[*dlock.NotAcquiredError](err)
	return no
}
