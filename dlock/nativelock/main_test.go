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
	// These tests keep servers busy on two processors, so fewer run in parallel than elsewhere.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	servertest.Main(m, func() error { return goleak.Find() })
}

// suiteTTL is the TTL of leases that the conformance suite waits for. It is long enough for a busy
// machine.
const suiteTTL = 2 * time.Second

// crowdOptions have short leases that a busy machine can still renew in time.
var crowdOptions = dlock.SessionOptions{TTL: faultTTL, StoreTimeout: faultTTL / 3}

const faultTTL = 4 * time.Second
