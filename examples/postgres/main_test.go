//go:build unix

package main

import (
	"testing"

	"github.com/tickslot/tickslot/examples/internal/fleettest"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

func TestMain(m *testing.M) {
	fleettest.Main(main)
	servertest.Main(m)
}

// Three copies on a real Postgres each create the table, and each tick runs once.
//
// Fails with MaxConcurrency: 3 (each copy runs each tick), and when each copy has its own prefix.
func TestThreeCopies(t *testing.T) {
	server := sqltest.SharedPostgres(t)
	fleet := fleettest.Start(t, 3, []string{"DATABASE_URL=" + server.DSN("", "", server.NewDatabase(t))})
	fleet.Await(t, "report ends", 4)
	fleet.Terminate(t)
	fleet.End(t)
	runs := fleet.Runs(t, "report")
	ticks := map[string]int{}
	for _, run := range runs {
		if ticks[run.Tick]++; ticks[run.Tick] > 1 {
			t.Errorf("tick %s ran more than once: %+v", run.Tick, runs)
		}
	}
	fleettest.FencesGrow(t, runs)
}
