package driver

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrNotAcquired is matched by every *NotAcquiredError.
	ErrNotAcquired = errors.New("not acquired")
	// ErrFault is matched by an error of a store that answered, but found a value that it cannot
	// use at a key of this name. The store itself works. As with ErrSetup, do not run without the
	// store.
	ErrFault = errors.New("the store found something wrong")
	// ErrSetup is matched by an error of a store that answered, but can serve no name until it is
	// repaired: a table or a right is missing, or its scripts may not call a command that they
	// need. Unlike an outage it does not pass: do not run without the store.
	ErrSetup = errors.New("the store is not set up right")
	// ErrClosed is matched by the error of a store, or of a dlock.Session, that is used after its
	// Close.
	ErrClosed = errors.New("used after Close")
)

// A Reason is why the store refused.
type Reason string

const (
	// ReasonFull: every slot is held.
	ReasonFull Reason = "full"
	// ReasonPaused: an operator paused the name, see Controller.
	ReasonPaused Reason = "paused"
	// ReasonQuarantine: the store restarted, maybe without its data. It grants again once all
	// leases that it granted before must have ended.
	ReasonQuarantine Reason = "quarantine"

	// ReasonLimitFull: a semaphore of Request.Shared has no free slot, or is paused. Nothing was
	// taken.
	ReasonLimitFull Reason = "limit_full"

	// ReasonLimitRate: a semaphore of Request.Shared had as many grants as its Rate allows. Nothing
	// was taken, and nothing was counted.
	ReasonLimitRate Reason = "limit_rate"

	// The reasons below are only for requests with a Tick.

	// ReasonTickTaken: the tick has had all the starts that it allows.
	ReasonTickTaken Reason = "tick_taken"
	// ReasonTickLate: a later tick of this timer was claimed already.
	ReasonTickLate Reason = "tick_late"
	// ReasonTickAhead: the tick is more than MaxTickAhead ahead of the store's clock. Check the
	// clock of this host.
	ReasonTickAhead Reason = "tick_ahead"
	// ReasonTickFirst: the tick was claimed as missed, but its schedule is not known, or was not
	// when the tick came due: see Tick.MissedAt.
	ReasonTickFirst Reason = "tick_first"
	// ReasonTickHeld: the tick was claimed as missed, but it came due before the end of the latest
	// lease of the name, or one is held.
	ReasonTickHeld Reason = "tick_held"
	// ReasonTickEarly: Tick.Delay has not passed since the last lease of the name ended.
	ReasonTickEarly Reason = "tick_early"
)

// A NotAcquiredError says that the store refused. It is an answer, not a failure: the store works.
type NotAcquiredError struct {
	Name   string
	Reason Reason
	Slots  int // how many the request declared; 0: a mutex

	// Shared is the semaphore of Request.Shared that refused (ReasonLimitFull, ReasonLimitRate).
	// Holder, HeldFor, ExpiresIn and PausedBy are then about it, and SharedInfo is the Info of it.
	Shared     SemaphoreSpec
	SharedInfo Info

	// Holder is who has it (ReasonFull; if several do, the one whose lease ends first), or who
	// claimed the tick last (ReasonTickTaken). Zero if the store does not know.
	Holder Holder
	// HeldFor is how long Holder has had it (ReasonFull).
	HeldFor time.Duration
	// ExpiresIn is how long until it may be free, unless extended (ReasonFull, ReasonQuarantine,
	// ReasonPaused), until Tick.Delay has passed (ReasonTickEarly), or until the rate allows
	// another start, unless others take it (ReasonLimitRate). 0 if that is not known. Redis tells
	// its age in whole seconds, so the end of its quarantine may be a second later than this.
	ExpiresIn time.Duration
	// PausedBy is who paused the name, and why (ReasonPaused).
	PausedBy Cause
	// LimitedBy is who set Info.SlotLimit, and why. Stores leave it out of their answers; a timer
	// fills it in when it knows.
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
		if n.Holder != (Holder{}) { // not every store knows
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
		// Redis tells its age in whole seconds, so the end is known to a second only.
		about := max(time.Second, (n.ExpiresIn + time.Second - 1).Truncate(time.Second))
		why = fmt.Sprintf("the store restarted and may have lost its leases; it grants again in about %s", about)
	case ReasonPaused:
		why = "paused"
		if n.PausedBy != (Cause{}) { // not every store knows
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

// inForce returns how many slots are granted, and says so if an operator has set that number.
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

// limitFull says which semaphore of Request.Shared refused, and why.
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
