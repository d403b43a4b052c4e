package sqllock_test

import (
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/servertest"
)

func TestMain(m *testing.M) {
	// Fewer at once than elsewhere: these tests keep servers busy, and two processors have to do.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	servertest.Main(m, func() error { return goleak.Find() })
}

// A subject is one database, in one way of reaching it, that the tests which all dialects share run on.
type subject struct {
	// open returns the client of one more host, which is closed after the test.
	open func(t testing.TB, opts sqllock.Options) *sqllock.Store
	// exec executes statements as the owner of the database, and returns what they print.
	exec func(t testing.TB, statements string) string
	// table is how a statement of the dialect names the default table.
	table string
}

// migrated returns a subject whose table has been made.
func (s subject) migrated(t testing.TB) subject {
	t.Helper()
	if err := s.open(t, sqllock.Options{}).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// hosts returns an Open for the dlocktest suite and the like: every call is one more host in the same namespace.
func (s subject) hosts(t testing.TB) func() dlock.DistributedLock {
	prefix := unique("p")
	return func() dlock.DistributedLock { return s.open(t, sqllock.Options{Prefix: prefix}) }
}

var prefixes atomic.Int64

// unique makes a prefix that no other test has, nor the same test in another round of -count.
func unique(prefix string) string { return fmt.Sprintf("%s%d:", prefix, prefixes.Add(1)) }

// long skips what waits for real, in the short tests.
func long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("waits for real")
	}
}

// suiteTTL is the length of the leases for which the conformance suite waits: long enough for a machine that has much else to do.
const suiteTTL = time.Second
