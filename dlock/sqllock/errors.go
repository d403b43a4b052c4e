package sqllock

import (
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

var (
	// ErrSchema is matched by what Verify and Migrate return when the table or the routines are missing, old, or not as Schema makes them. It
	// matches dlock.ErrSetup.
	ErrSchema = fmt.Errorf("sqllock: %w: the schema is not right", dlock.ErrSetup)

	// errAnswer is an answer that makes no sense: some other routine of the same name, or a proxy gone wrong.
	errAnswer = errors.New("sqllock: the database gave an answer that makes no sense")

	// errRowLocked is why nothing is known of one lease of a call whose other leases are well.
	errRowLocked = fmt.Errorf("sqllock: %w: %s", dlock.ErrFault, sqlkit.LockAdvice)
)

// explain adds to an error of a driver what to do about it, and what it means for a dlock.Session.
func explain(err error) error { return fmt.Errorf("sqllock: %w", sqlkit.Explain(err)) }
