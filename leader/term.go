package leader

import (
	"fmt"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/guard"
)

// A Term is a period in which this host leads. Its methods may be called from any goroutine.
type Term struct {
	role  string
	lease *dlock.Lease
}

// Role returns the name of the role.
func (t *Term) Role() string { return t.role }

// Slot returns which of the Role.Max leaders this one is, from 0: a shard number.
func (t *Term) Slot() int { return t.lease.Slot() }

// Fence returns the number of the term, which is greater than that of every earlier term of this
// slot; 0 if the store has no fences.
func (t *Term) Fence() dlock.Fence { return t.lease.Fence() }

// PreviousExpired reports whether the previous leader's lease expired without being released: that
// leader has died, or was cut off.
func (t *Term) PreviousExpired() bool { return t.lease.PreviousExpired() }

// Valid reports whether this host leads at this instant. It reads clocks and does not call the
// store: call it before each step that two leaders must not both take.
func (t *Term) Valid() bool { return t.lease.Valid() }

// An Outcome is how a term ended.
type Outcome string

const (
	// OutcomeReturned: the function returned nil before its context ended.
	OutcomeReturned Outcome = "returned"
	// OutcomeFailed: the function returned an error, panicked, or called runtime.Goexit.
	OutcomeFailed Outcome = "failed"
	// OutcomeLeaseLost: the lease was lost, or revoked.
	OutcomeLeaseLost Outcome = "lease_lost"
	// OutcomeStopped: the context of Elector.Run has ended.
	OutcomeStopped Outcome = "stopped"
)

var outcomes = [...]Outcome{OutcomeReturned, OutcomeFailed, OutcomeLeaseLost, OutcomeStopped}

// A PanicError is the error of a function that panicked. Its Value is the argument of panic, and
// its Stack is the goroutine's, as debug.Stack returns it.
type PanicError = guard.PanicError

// A StuckError is returned by Elector.Run if the function did not return within StopTimeout. Its
// goroutine still exists, and the role is left to expire.
type StuckError struct{ Role string }

func (s *StuckError) Error() string {
	return fmt.Sprintf("leader: role %q: the function ignores the end of its context: the role will expire",
		s.Role)
}
