//go:build unix

package main

import (
	"testing"

	"github.com/tickslot/tickslot/examples/internal/fleettest"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
)

func TestMain(m *testing.M) {
	fleettest.Main(main)
	servertest.Main(m)
}

// Three copies on a real Redis run two at the same time, never three, and end on SIGTERM when their
// runs have finished.
//
// Fails when each copy has its own prefix (three at once), with MaxConcurrency: 1 (never two), and
// when a run is cut off (its end is missing).
func TestThreeCopies(t *testing.T) {
	server := redistest.New(t)
	fleet := fleettest.Start(t, 3, []string{"REDIS_URL=" + server.URL()}, "-ttl", "3s")
	fleet.Await(t, "poll ends", 4)
	fleet.Terminate(t)
	fleet.End(t)
	runs := fleet.Runs(t, "poll")
	if most := fleettest.MostAtOnce(runs); most != 2 {
		t.Errorf("%d at once, want 2: %+v", most, runs)
	}
	fleettest.FencesGrow(t, runs)
}
