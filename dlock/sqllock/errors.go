package sqllock

import (
	"fmt"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/store"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

var (
	// ErrSchema matches the errors of Verify and Migrate if the table or the routines are missing,
	// old, or different from Schema's. It matches driver.ErrSetup.
	ErrSchema = store.ErrSchema

	// errRowLocked is the error of a single lease whose row is locked. The other leases of the call
	// were handled.
	errRowLocked = fmt.Errorf("sqllock: %w: %s", driver.ErrFault, sqlkit.LockAdvice)
)

// explain adds to a driver's error how to repair it, and makes it match an error of package driver
// if one fits.
func explain(err error) error { return fmt.Errorf("sqllock: %w", sqlkit.Explain(err)) }
