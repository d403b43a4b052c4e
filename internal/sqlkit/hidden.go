package sqlkit

import (
	"fmt"

	"github.com/tickslot/tickslot/dlock/driver"
)

// CheckHidden returns an error that matches driver.ErrSetup if row level security may hide rows of
// tables. No statement would fail in that case; there would only seem to be no work.
func CheckHidden(tables string) error {
	if tables == "" {
		return nil
	}
	return fmt.Errorf("%w: row level security may hide rows of %s from this user, so that there would seem to be "+
		"no work: connect as a role with BYPASSRLS, or as the owner of the tables; or ALTER TABLE … DISABLE ROW "+
		"LEVEL SECURITY; or give the role a policy for ALL that is USING (true), and no restrictive one",
		driver.ErrSetup, tables)
}
