package sqlkit

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/tickslot/tickslot/dlock"
)

//go:embed postgres_hidden.sql
var postgresHidden string

// PostgresHidden returns a query of one row with one text, for CheckHidden, and its arguments. The
// tables are named as statements name them.
func PostgresHidden(tables ...string) (text string, args []any) {
	return strings.TrimSpace(postgresHidden), []any{InJSON(tables)}
}

// CheckHidden returns an error that matches dlock.ErrSetup if row level security may hide rows of
// tables, which are the answer to PostgresHidden. Nothing fails then: there seems to be no work.
func CheckHidden(tables string) error {
	if tables == "" {
		return nil
	}
	return fmt.Errorf("%w: row level security may hide rows of %s from this user, so that work would seem not to "+
		"be there: connect as a role with BYPASSRLS, or as the owner of the tables; or ALTER TABLE … DISABLE ROW "+
		"LEVEL SECURITY; or give the role a policy for ALL that is USING (true), and no restrictive one",
		dlock.ErrSetup, tables)
}
