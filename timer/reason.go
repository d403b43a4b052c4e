package timer

import (
	"errors"

	"github.com/tickslot/tickslot/dlock"
)

// Reason is the door that stopped a tick.
type Reason string

const (
	Missed      Reason = "missed"       // this host was late by more than a period: only the latest tick is tried
	LimitLocal  Reason = "limit_local"  // MaxPerHost runs go on here
	LimitGlobal Reason = "limit_global" // MaxConcurrency runs go on in the fleet
	TickTaken   Reason = "tick_taken"   // the tick has had its MaxPerTick starts
	TickLate    Reason = "tick_late"    // another host has claimed a later tick: this host's clock is behind, or it was paused
	TickAhead   Reason = "tick_ahead"   // this host's clock is more than five seconds ahead of the store's
	Quarantine  Reason = "quarantine"   // the store restarted and must wait until old leases have ended
	Paused      Reason = "paused"       // the store says that the timer is paused
	StoreDown   Reason = "store"        // the store did not answer and OnStoreDown is Skip
	Rejoining   Reason = "rejoining"    // the store is back, and runs that went on without it hold no slot yet
	Draining    Reason = "draining"     // the host is shutting down
	NotRunning  Reason = "not_running"  // Trigger before Run, or after it
)

// reasonOf translates the store's no.
func reasonOf(err error) Reason {
	no, ok := errors.AsType[*dlock.NotAcquiredError](err)
	if !ok {
		return StoreDown
	}
	if no.Reason == dlock.Full {
		return LimitGlobal
	}
	return Reason(no.Reason) // the others have the same names
}
