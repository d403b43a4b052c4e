// Package clustertimer records the runs of a timer.Scheduler in a cluster.Registry, so that the
// last runs of each timer remain visible after the processes that made them have ended.
//
//	timers, err := timer.New(timer.Config{
//		Store:  registry.Decorate(store), // for events; without it only runs are recorded
//		Holder: registry.Holder(),
//		Hooks:  clustertimer.Hooks(registry, timer.Hooks{}),
//	}, …)
//	...
//	registry.Add(timers) // for its state, and its timers with their limits
//
// The RunEnded hook queues a run, and the registry writes it with its next heartbeat. No run and no
// release waits for that. Not every run is guaranteed to be recorded: a registry that is down for
// long drops the oldest runs, and slow hooks cause events to be dropped. Both are counted.
package clustertimer

import (
	"strings"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/timer"
)

// Hooks returns hooks that record each ended run and then call the user's hooks.
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
	if p := guard.Panicked(i.Err); p != nil {
		r.Stack = handlerStack(string(p.Stack))
	}
	return r
}

// handlerStack returns a stack without the calls above the panic, which are the same for all runs:
// the registry keeps few bytes.
func handlerStack(stack string) string {
	goroutine, _, _ := strings.Cut(stack, "\n")
	_, below, found := strings.Cut(stack, "\npanic(")
	if !found {
		return stack
	}
	parts := strings.SplitN(below, "\n", 3) // the arguments of panic, its line, and what called it
	if len(parts) < 3 {
		return stack
	}
	return goroutine + "\n" + parts[2]
}

// maxErrorLen is the maximum length in bytes of an error that is passed on. The registry keeps
// fewer.
const maxErrorLen = 4096
