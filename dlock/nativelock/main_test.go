package nativelock_test

import (
	"flag"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/proof/servertest"
)

func TestMain(m *testing.M) {
	// Fewer at once than elsewhere: these tests keep servers busy on two processors.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	servertest.Main(m, func() error { return goleak.Find() })
}

// suiteTTL is the length of the leases for which the conformance suite waits: long enough for a
// busy machine.
const suiteTTL = 2 * time.Second

// crowdOptions have short leases, which still last long enough for a busy machine to renew them.
var crowdOptions = dlock.SessionOptions{TTL: faultTTL, StoreTimeout: faultTTL / 3}

const faultTTL = 4 * time.Second
