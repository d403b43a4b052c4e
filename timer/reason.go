package timer

import (
	"errors"

	"github.com/tickslot/tickslot/dlock"
)

// Reason is why a tick did not start a run, or why a Trigger was refused.
type Reason string

const (
	// This host was late, and CatchUp says not to run it, or a later tick is tried.
	ReasonMissed    Reason = "missed"
	ReasonBlackout  Reason = "blackout"   // it fell into a blackout of its timer or of the scheduler
	ReasonHostFull  Reason = "host_full"  // MaxPerHost runs go on here
	ReasonFull      Reason = "full"       // MaxConcurrency runs go on in the fleet
	ReasonTickTaken Reason = "tick_taken" // the tick has had its MaxPerTick starts
	// A tick before this host's start: none of this schedule was claimed before, so it was not
	// missed.
	ReasonTickFirst Reason = "tick_first"
	// A tick before this host's start: a run went on when it came due, so hosts were there and
	// skipped it.
	ReasonTickHeld Reason = "tick_held"
	// Another host has claimed a later tick: this host's clock is behind, or it was paused.
	ReasonTickLate   Reason = "tick_late"
	ReasonTickAhead  Reason = "tick_ahead" // this host's clock is more than five seconds ahead of the store's
	ReasonQuarantine Reason = "quarantine" // the store restarted and must wait until old leases have ended
	ReasonPaused     Reason = "paused"     // somebody paused the timer
	// The store did not answer and OnStoreDown is StoreDownSkip, or the tick was missed and nobody
	// knows whether it ran.
	ReasonStoreDown Reason = "store"
	// The store can serve no timer until somebody mends it (dlock.ErrSetup), whatever OnStoreDown
	// says.
	ReasonStoreSetup Reason = "store_setup"
	// The store found something wrong at a key of this timer (dlock.ErrFault), whatever OnStoreDown
	// says.
	ReasonStoreFault Reason = "store_fault"
	// This host had 64 calls to the store under way until the next tick came due: it answers
	// slowly, or too much is due at once.
	ReasonStoreBusy  Reason = "store_busy"
	ReasonRejoining  Reason = "rejoining"   // the store is back, and runs that went on without it hold no slot yet
	ReasonDraining   Reason = "draining"    // the host is shutting down
	ReasonNotRunning Reason = "not_running" // Trigger before Run, or after it
)

// reasonOf translates what the store said.
func reasonOf(err error) Reason {
	if no, ok := errors.AsType[*dlock.NotAcquiredError](err); ok {
		return Reason(no.Reason) // they have the same names
	}
	switch {
	case matches(err, dlock.ErrSetup):
		return ReasonStoreSetup
	case matches(err, dlock.ErrFault):
		return ReasonStoreFault
	default:
		return ReasonStoreDown
	}
}

// matches is errors.Is for an error of the store: one that panics when it is looked into matches
// nothing.
func matches(err, target error) (yes bool) {
	defer func() {
		if recover() != nil {
			yes = false
		}
	}()
	return errors.Is(err, target)
}
