package sqllock

import (
	"fmt"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/store"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

var (
	// ErrSchema is matched by the errors of Verify and Migrate when the table or the routines are
	// missing, old, or different from those of Schema. It matches driver.ErrSetup.
	ErrSchema = store.ErrSchema

	// errRowLocked is the error of one lease whose row is locked. The other leases of the call were
	// handled.
	errRowLocked = fmt.Errorf("sqllock: %w: %s", driver.ErrFault, sqlkit.LockAdvice)
)

// explain adds to a driver's error how to repair it, and whether it matches an error of package
// driver.
func explain(err error) error { return fmt.Errorf("sqllock: %w", sqlkit.Explain(err)) }
