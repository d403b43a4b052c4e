package sqllock

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

type pgRefusal string

func (r pgRefusal) Error() string    { return "refused" }
func (r pgRefusal) SQLState() string { return string(r) }

// A refusal that lasts until it is repaired is ErrSetup, and a refusal of a single name is
// ErrFault. A server that fails over, is full or shuts down is an outage.
//
// Fails when a refused login counts as a store that does not answer: with StoreDownRunLocal, every
// host would then run.
func TestMeaningOfErrors(t *testing.T) {
	t.Parallel()
	mysql := func(number, state string) error {
		return fmt.Errorf("Error %s (%s): refused", number, state)
	}
	for err, want := range map[error]error{
		pgRefusal("42P01"): driver.ErrSetup, // missing table
		pgRefusal("42883"): driver.ErrSetup, // missing function
		pgRefusal("42501"): driver.ErrSetup, // missing privilege
		pgRefusal("3F000"): driver.ErrSetup, // missing schema
		pgRefusal("28P01"): driver.ErrSetup, // wrong password
		pgRefusal("28000"): driver.ErrSetup, // missing entry in pg_hba.conf
		pgRefusal("3D000"): driver.ErrSetup, // missing database
		pgRefusal("42000"): driver.ErrSetup, // wrong isolation level
		pgRefusal("26000"): driver.ErrSetup, // a pooler without the prepared statement
		pgRefusal("22021"): driver.ErrFault, // a name that the encoding cannot represent
		pgRefusal("23514"): driver.ErrFault, // a violated constraint
		pgRefusal("55P03"): driver.ErrFault, // a row that another session has locked
		pgRefusal("25006"): nil,             // a replica
		pgRefusal("08006"): nil,
		pgRefusal("40P01"): nil,
		pgRefusal("53300"): nil, // too many connections
		pgRefusal("57P03"): nil, // starting up
		pgRefusal("57014"): nil, // cancelled
		pgRefusal("58030"): nil, // a disk error
		pgRefusal("XX000"): nil,
		pgRefusal(""):      nil,

		mysql("1146", "42S02"): driver.ErrSetup,
		mysql("1045", "28000"): driver.ErrSetup,
		mysql("1049", "42000"): driver.ErrSetup,
		mysql("1205", "HY000"): driver.ErrFault,
		mysql("1836", "HY000"): nil,
		mysql("1040", "08004"): nil,
		mysql("1213", "40001"): nil,
		errors.New("EOF"):      nil,
	} {
		told := explain(err)
		for _, meaning := range []error{driver.ErrSetup, driver.ErrFault} {
			if errors.Is(told, meaning) != (want == meaning) {
				t.Errorf("%v (%s): %v", err, sqlkit.State(err), told)
			}
		}
		if !errors.Is(told, err) || !strings.HasPrefix(told.Error(), "sqllock: ") {
			t.Errorf("%v: %v: must keep the error", err, told)
		}
	}
	if !errors.Is(ErrSchema, driver.ErrSetup) {
		t.Error("somebody has to fix a wrong schema")
	}
}
