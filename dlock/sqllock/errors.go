package sqllock

import (
	"fmt"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/dialect"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

var (
	// ErrSchema is matched by what Verify and Migrate return when the table or the routines are
	// missing, old, or not as Schema makes them. It matches dlock.ErrSetup.
	ErrSchema = dialect.ErrSchema

	// errRowLocked is why nothing is known of one lease of a call whose other leases are well.
	errRowLocked = fmt.Errorf("sqllock: %w: %s", dlock.ErrFault, sqlkit.LockAdvice)
)

// explain adds to an error of a driver what to do about it, and what it means for a dlock.Session.
func explain(err error) error { return fmt.Errorf("sqllock: %w", sqlkit.Explain(err)) }
