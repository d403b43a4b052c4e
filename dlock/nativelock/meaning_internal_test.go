package nativelock

import (
	"errors"
	"testing"

	"github.com/tickslot/tickslot/dlock/driver"
)

type refusal string // an SQLSTATE

func (r refusal) Error() string    { return "refused" }
func (r refusal) SQLState() string { return string(r) }

// means reports an error unless told matches the expected driver.ErrSetup or driver.ErrFault, or
// neither if want is nil.
func means(t *testing.T, what string, told, want error) {
	t.Helper()
	for _, meaning := range []error{driver.ErrSetup, driver.ErrFault} {
		if errors.Is(told, meaning) != (want == meaning) {
			t.Errorf("%s: %v: matches %q: %t", what, told, meaning, errors.Is(told, meaning))
		}
	}
}

// Fails when an error that affects every native lock counts as a fault of one name.
func TestMeaningOfErrors(t *testing.T) {
	t.Parallel()
	means(t, "a pooler", errNotOurs, driver.ErrSetup)
	means(t, "a tick", errTick, driver.ErrFault)
	means(t, "no second connection", noSecondConn(refusal("28P01")), driver.ErrSetup)
	means(t, "no second connection", noSecondConn(refusal("53300")), nil)
	means(t, "access denied", (&Store{}).explain(errors.New("Error 1045 (28000): Access denied")), driver.ErrSetup)
	means(t, "too many", (&Store{}).explain(errors.New("Error 1040 (08004): Too many connections")), nil)
	means(t, "no room for another lock", (&Store{}).explain(refusal("53200")), driver.ErrFault)
}
