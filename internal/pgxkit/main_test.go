package pgxkit

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/proof/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m, func() error { return goleak.Find() }) }
