package driver

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrNotAcquired matches every *NotAcquiredError.
	ErrNotAcquired = errors.New("not acquired")
	// ErrFault matches the error of a store that answered but found a value that it cannot use at a
	// key of this name. The store itself works. As with ErrSetup, do not run without the store.
	ErrFault = errors.New("the store found something wrong")
	// ErrSetup matches the error of a store that answered but cannot serve any name until it is
	// repaired. For example, a table or permission is missing, or a script may not call a command.
	// Unlike an outage, this state does not pass, so do not run without the store.
	ErrSetup = errors.New("the store is not set up right")
	// ErrClosed matches the error of a store or dlock.Session that is used after its Close.
	ErrClosed = errors.New("used after Close")
)

// A Reason says why the store refused a request.
type Reason string

const (
	// ReasonFull means that every slot is held.
	ReasonFull Reason = "full"
	// ReasonPaused means that an operator paused the name: see Controller.
	ReasonPaused Reason = "paused"
	// ReasonQuarantine means that the store restarted and may have lost its data. It grants leases
	// again when all earlier leases must have ended.
	ReasonQuarantine Reason = "quarantine"

	// ReasonLimitFull means that a semaphore of Request.Shared has no free slot or is paused.
	// Nothing was taken.
	ReasonLimitFull Reason = "limit_full"

	// ReasonLimitRate means that a semaphore of Request.Shared has had as many grants as its Rate
	// allows. Nothing was taken or counted.
	ReasonLimitRate Reason = "limit_rate"

	// The reasons below are only for requests with a Tick.

	// ReasonTickTaken means that the tick has had all its allowed starts.
	ReasonTickTaken Reason = "tick_taken"
	// ReasonTickLate means that a later tick of this timer was already claimed.
	ReasonTickLate Reason = "tick_late"
	// ReasonTickAhead means that the tick is more than MaxTickAhead ahead of the store's clock.
	// Check this host's clock.
	ReasonTickAhead Reason = "tick_ahead"
	// ReasonTickFirst means that the tick was claimed as missed, but its schedule is unknown or was
	// unknown when the tick came due: see Tick.MissedAt.
	ReasonTickFirst Reason = "tick_first"
	// ReasonTickHeld means that the tick was claimed as missed, but it came due while a lease of
	// the name was held or before the end of the latest one.
	ReasonTickHeld Reason = "tick_held"
	// ReasonTickEarly means that Tick.Delay has not passed since the last lease of the name ended.
	ReasonTickEarly Reason = "tick_early"
)

// A NotAcquiredError says that the store refused a request. It is an answer, not a failure: the
// store works.
type NotAcquiredError struct {
	Name   string
	Reason Reason
	Slots  int // declared by the request; 0 for a mutex

	// Shared is the semaphore of Request.Shared that refused (ReasonLimitFull, ReasonLimitRate).
	// Holder, HeldFor, ExpiresIn and PausedBy then describe this semaphore, and SharedInfo is its
	// Info.
	Shared     SemaphoreSpec
	SharedInfo Info

	// Holder is the holder of the lease (ReasonFull), or the last host that claimed the tick
	// (ReasonTickTaken). If several leases are held, it is the holder of the one that ends first.
	// Zero if the store does not know.
	Holder Holder
	// HeldFor is how long Holder has held the lease (ReasonFull).
	HeldFor time.Duration
	// ExpiresIn is the time until the slot may be free if nothing extends it (ReasonFull,
	// ReasonQuarantine, ReasonPaused), until Tick.Delay has passed (ReasonTickEarly), or until the
	// rate allows another start (ReasonLimitRate). 0 if unknown. Redis reports its uptime in whole
	// seconds, so its quarantine may end up to a second later.
	ExpiresIn time.Duration
	// PausedBy says who paused the name and why (ReasonPaused).
	PausedBy Cause
	// LimitedBy says who set Info.SlotLimit and why. Stores leave it empty; a timer sets it if it
	// knows.
	LimitedBy Cause
	Info      Info
}

func (n *NotAcquiredError) Error() string {
	var why string
	switch n.Reason {
	case ReasonFull:
		why = "held"
		slots, limited := inForce(n.Slots, n.Info, n.LimitedBy)
		switch {
		case slots > 1 && n.Holder != (Holder{}):
			why = fmt.Sprintf("all %d slots held, first to end: %s,", slots, n.Holder)
		case slots > 1:
			why = fmt.Sprintf("all %d slots held", slots)
		case n.Holder != (Holder{}):
			why = fmt.Sprintf("held by %s", n.Holder)
		}
		if n.Holder != (Holder{}) { // some stores do not know
			why += fmt.Sprintf(" for %s, ends in %s unless extended", round(n.HeldFor), round(n.ExpiresIn))
		}
		why += limited
	case ReasonLimitFull:
		why = n.limitFull()
	case ReasonLimitRate:
		why = fmt.Sprintf("%s had its %d starts within %v, and allows the next in %s", n.Shared.Name, n.Shared.Rate,
			n.Shared.Per, round(n.ExpiresIn))
	case ReasonTickTaken:
		why = "the tick has had all its starts"
		if n.Holder != (Holder{}) {
			why += fmt.Sprintf(", the last by %s", n.Holder)
		}
	case ReasonTickFirst:
		why = "no tick of this schedule was claimed before, so none was missed"
	case ReasonTickHeld:
		why = "it was held when the tick came due, so the tick was skipped then, not missed"
	case ReasonTickEarly:
		why = fmt.Sprintf("the delay since the last lease ended is not over, for another %s", round(n.ExpiresIn))
	case ReasonTickLate:
		why = "a later tick has been claimed already"
	case ReasonTickAhead:
		why = fmt.Sprintf("the tick is more than %v ahead of the store's clock: check the clock of this host",
			MaxTickAhead)
	case ReasonQuarantine:
		// Redis reports its uptime in whole seconds, so the end is known only to a second.
		about := max(time.Second, (n.ExpiresIn + time.Second - 1).Truncate(time.Second))
		why = fmt.Sprintf("the store restarted and may have lost its leases; it grants again in about %s", about)
	case ReasonPaused:
		why = "paused"
		if n.PausedBy != (Cause{}) { // some stores do not know
			why = fmt.Sprintf("paused %s", n.PausedBy)
		}
		if n.ExpiresIn > 0 {
			why += fmt.Sprintf(" (for another %s)", round(n.ExpiresIn))
		}
	case "":
		why = "the store gave no reason"
	default:
		why = string(n.Reason)
	}
	return fmt.Sprintf("%s: not acquired: %s", n.Name, why)
}

// inForce returns the number of slots that the store grants, and a text if an operator has set it.
func inForce(declared int, info Info, by Cause) (slots int, limited string) {
	switch {
	case declared == 0 || info.SlotLimit == 0 || info.SlotLimit == declared:
		return declared, ""
	case by == Cause{}:
		return info.SlotLimit, fmt.Sprintf(" (limited to %d; %d in the code)", info.SlotLimit, declared)
	default:
		return info.SlotLimit, fmt.Sprintf(" (limited to %d %s; %d in the code)", info.SlotLimit, by, declared)
	}
}

// limitFull returns which semaphore of Request.Shared refused, and why.
func (n *NotAcquiredError) limitFull() string {
	slots, limited := inForce(n.Shared.Slots, n.SharedInfo, Cause{})
	switch {
	case n.PausedBy != (Cause{}):
		return fmt.Sprintf("%s is paused %s", n.Shared.Name, n.PausedBy)
	case n.Holder != (Holder{}):
		return fmt.Sprintf("all %d slots of %s are held, first to end: %s, for %s, ends in %s unless extended%s",
			slots, n.Shared.Name, n.Holder, round(n.HeldFor), round(n.ExpiresIn), limited)
	default:
		return fmt.Sprintf("all %d slots of %s are held%s", slots, n.Shared.Name, limited)
	}
}

// Is makes errors.Is(err, ErrNotAcquired) true.
func (n *NotAcquiredError) Is(target error) bool { return target == ErrNotAcquired }

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
