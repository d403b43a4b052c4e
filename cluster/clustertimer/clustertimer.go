// Package clustertimer records the runs of a timer.Scheduler in a cluster.Registry, so that the
// last runs of each timer outlive the processes that made them.
//
//	timers, err := timer.New(timer.Config{
//		Store:  registry.Decorate(store), // for events; without it only runs are recorded
//		Holder: registry.Holder(),
//		Hooks:  clustertimer.Hooks(registry, timer.Hooks{}),
//	}, …)
//	...
//	registry.Add(timers) // for its state, and its timers with their limits
//
// A run is queued when its RunEnded hook is called, on the goroutine of the hooks, and is written
// with the next heartbeat of the registry. No run and no release waits for that. It is not promised
// that every run is recorded: if a registry is down for long it drops the oldest runs, and if hooks
// are slow events are dropped; both are counted.
package clustertimer

import (
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/timer"
)

// Hooks returns hooks that record each run that has ended, and then call the user's.
func Hooks(registry *cluster.Registry, own timer.Hooks) timer.Hooks {
	next := own.RunEnded
	own.RunEnded = func(i timer.RunResult) {
		registry.RecordRun(runOf(i))
		if next != nil {
			next(i)
		}
	}
	return own
}

// runOf returns the record of a run.
func runOf(i timer.RunResult) cluster.Run {
	r := cluster.Run{ID: i.ID, Timer: i.Timer, Holder: i.Holder, Tick: i.Tick, Slot: i.Slot, Fence: i.Fence,
		EndedAgo: max(0, time.Since(i.StartedAt.Add(i.Took))), Took: i.Took, Outcome: string(i.Outcome),
		Attempts: i.Attempt, By: i.TriggeredBy.By}
	if i.Err != nil {
		r.Err = guard.Text(i.Err, maxErrorLen)
	}
	return r
}

// maxErrorLen is how many bytes of an error are passed on: the registry keeps fewer.
const maxErrorLen = 4096
