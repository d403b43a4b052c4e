//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
)

// patience is how long the remaining runs may take after all faults.
const patience = 2 * time.Minute

// A tormentor has the workers and the database of one torture.
type tormentor struct {
	crew   *nemesis.Crew
	timing Timing
	watch  *watch
}

// newTormentor starts the database and all processes.
func newTormentor(kind, dir string, timing Timing) (t *tormentor, err error) {
	t = &tormentor{timing: timing}
	t.crew, err = nemesis.NewCrew(nemesis.CrewOptions{Kind: kind, Dir: dir, Lease: timing.Lease, Call: timing.Call(),
		Table: tableOfRuns, Rows: "state = 'running'"})
	if err != nil {
		return nil, err
	}
	direct, err := nemesis.Open(t.crew.Database.Direct())
	if err != nil {
		return t, err
	}
	t.watch = &watch{door: direct, log: t.crew.Log}
	if t.crew.Database.Bounced() {
		if t.watch.bounced, err = nemesis.Open(t.crew.Database.Aside()); err != nil {
			return t, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := storeOf(direct).Migrate(ctx); err != nil {
		return t, err
	}
	for i := range hostsOf(kind) {
		if err := t.crew.Add("worker", fmt.Sprint("host-", i), true); err != nil {
			return t, err
		}
	}
	if err := t.watch.registered(); err != nil {
		return t, err
	}
	return t, t.crew.AddClients(doors)
}

// close stops the remaining processes.
func (t *tormentor) close() {
	t.crew.Close()
	if t.watch != nil {
		t.watch.door.Close()
		if t.watch.bounced != nil {
			t.watch.bounced.Close()
		}
	}
}

// torment performs the plan, then waits until all triggered runs have ended.
func (t *tormentor) torment(ctx context.Context, faults []nemesis.Fault, length time.Duration) error {
	looking, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	t.watch.run(looking, &all)
	t.crew.KeepUp(looking, &all)
	t.crew.Torment(ctx, faults, length)
	t.crew.EndClients()
	// From now on, ticks have no runs but are still accounted for.
	control := storeOf(t.watch.door).Control()
	for _, c := range cadences {
		err := testkit.Poll(30*time.Second, "pause "+c.name, func(ctx context.Context) error {
			return control.PauseSchedule(ctx, c.name, time.Now().Add(time.Hour), driver.Cause{By: "torture"})
		})
		if err != nil {
			return err
		}
	}
	err := t.watch.finished(patience)
	time.Sleep(t.timing.rules().TicksWithin) // earlier ticks are accounted for by then
	ticks, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, t.watch.ticks(ticks))
}

// end stops all workers cleanly, and logs the database's contents.
func (t *tormentor) end() error {
	t.crew.End("worker")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return t.watch.rows(ctx)
}
