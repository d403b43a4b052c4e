//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
)

// patience is how long the remaining messages may take after all faults.
const patience = time.Minute

// A tormentor has the processes and the database of one torture.
type tormentor struct {
	crew   *nemesis.Crew
	timing Timing
	watch  *watch
	births atomic.Int64 // number of relays started
	calm   bool         // relays do not change the number of shards
}

// complete extends the spec of a process. Each starting relay changes the number of shards.
func (t *tormentor) complete(s nemesis.Spec) any {
	spec := Spec{Spec: s}
	switch s.Role {
	case "relay":
		if !t.calm {
			spec.Shards = 1 + 2*int(t.births.Add(1)%2)
		}
		for i := range receivers {
			spec.Receivers = append(spec.Receivers, socketOf(s.Dir, fmt.Sprint("receiver-", i)))
		}
	case "receiver":
		spec.Receivers = []string{socketOf(s.Dir, torture.Place(s.Name))}
	}
	return spec
}

// newTormentor starts the database and all processes.
func newTormentor(kind, dir string, timing Timing) (t *tormentor, err error) {
	t = &tormentor{timing: timing}
	t.crew, err = nemesis.NewCrew(nemesis.CrewOptions{Kind: kind, Dir: dir, Lease: timing.TTL, Call: timing.Call(),
		Table: tableOfMessages, Rows: "state = 'pending'", Complete: t.complete})
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
	box := outboxOf(direct)
	defer box.Close()
	if err := box.Migrate(ctx); err != nil {
		return t, err
	}
	for _, statement := range schema(direct) {
		if _, err := direct.DB.ExecContext(ctx, statement); err != nil {
			return t, fmt.Errorf("%s: %w", statement, err)
		}
	}
	for _, of := range []struct {
		role, place string
		n           int
	}{{"receiver", "receiver-", receivers}, {"relay", "host-", hosts}, {"producer", "producer-", producers}} {
		for i := range of.n {
			if err := t.crew.Add(of.role, fmt.Sprint(of.place, i), of.role == "relay"); err != nil {
				return t, err
			}
		}
	}
	return t, nil
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

// torment performs the plan, makes relays fail over, and then waits until all messages are
// dispatched or dead and the processes have ended.
func (t *tormentor) torment(ctx context.Context, faults []nemesis.Fault, length time.Duration, failOvers int) error {
	looking, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	t.watch.run(looking, &all)
	t.crew.KeepUp(looking, &all)
	t.crew.Torment(ctx, faults, length)
	t.calm = true
	err := t.failOver(ctx, failOvers)
	t.crew.End("producer")
	err = errors.Join(err, t.watch.finished(patience))
	t.crew.End("relay")
	t.crew.End("receiver")
	return err
}

// failOver kills and pauses the delivering relay in turn, without other faults. On SQLite, it only
// kills the relay: a paused process may hold the file's lock, so a failover could not be timed.
func (t *tormentor) failOver(ctx context.Context, times int) error {
	rules := t.timing.rules()
	kinds := []string{"host_gone", "host_stop"}
	if t.crew.Kind == "sqlite" {
		kinds = kinds[:1]
	}
	for i := 0; i < times && ctx.Err() == nil; i++ {
		time.Sleep(rules.Recovers + rules.Within)
		place, err := t.watch.leader()
		if err != nil {
			return err
		}
		t.crew.Do(nemesis.Fault{Target: place, Kind: kinds[i%len(kinds)],
			For: rules.Within + t.timing.TTL/3})
	}
	return nil
}

// rows logs the contents of the database.
func (t *tormentor) rows() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return t.watch.rows(ctx)
}
