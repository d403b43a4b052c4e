package leader

import (
	"fmt"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/guard"
)

// A Term is the time for which this host leads. Its methods may be called from any goroutine.
type Term struct {
	role  string
	lease *dlock.Lease
}

// Role returns the name of the role.
func (t *Term) Role() string { return t.role }

// Slot returns which of the Role.Max leaders this is, from 0: a shard number.
func (t *Term) Slot() int { return t.lease.Slot() }

// Fence returns the number of the term, which is greater than that of every earlier term of this
// slot; 0 if the store gives none.
func (t *Term) Fence() dlock.Fence { return t.lease.Fence() }

// PreviousExpired reports whether the leader before this one let its lease expire without releasing
// it: it has died, or was cut off.
func (t *Term) PreviousExpired() bool { return t.lease.PreviousExpired() }

// Valid reports whether this host leads at this instant. It reads clocks and does not call the
// store: ask it before each step that must not be done by two leaders.
func (t *Term) Valid() bool { return t.lease.Valid() }

// An Outcome is how a term has ended.
type Outcome string

const (
	// OutcomeReturned: the function returned nil before it had to.
	OutcomeReturned Outcome = "returned"
	// OutcomeFailed: the function returned an error, panicked, or called runtime.Goexit.
	OutcomeFailed Outcome = "failed"
	// OutcomeLeaseLost: the lease was lost, or revoked.
	OutcomeLeaseLost Outcome = "lease_lost"
	// OutcomeStopped: the context of Elector.Run has ended.
	OutcomeStopped Outcome = "stopped"
)

var outcomes = [...]Outcome{OutcomeReturned, OutcomeFailed, OutcomeLeaseLost, OutcomeStopped}

// A PanicError is the error of a function that panicked. Its Value is what the function called
// panic with, and Stack that of its goroutine, as debug.Stack returns it.
type PanicError = guard.PanicError

// A StuckError is returned by Elector.Run if the function did not return within StopTimeout. Its
// goroutine is still there, and the role is left to expire.
type StuckError struct{ Role string }

func (s *StuckError) Error() string {
	return fmt.Sprintf("leader: role %q: the function ignores the end of its context: the role will expire",
		s.Role)
}
