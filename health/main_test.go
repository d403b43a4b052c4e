package health_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/proof/servertest"
)

// The test binary also serves as the hosts behind the load balancers.
func TestMain(m *testing.M) {
	if addr := os.Getenv(hostEnv); addr != "" {
		host(addr)
		return
	}
	servertest.Main(m, func() error { return goleak.Find() })
}
