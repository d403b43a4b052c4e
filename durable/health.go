package durable

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/lifecycle"
	"github.com/tickslot/tickslot/internal/loop"
)

// stallAfter returns how long a call to the database may take before Live fails.
func stallAfter(c Config) time.Duration { return loop.StallAfter(c.CallTimeout) }

// Live returns an error if a call to the database ignores its context or a loop has stalled. Then
// only a restart of the process helps. Live does not fail because the database is down.
func (w *Worker) Live() error {
	err := loop.Stalled(w.config.CallTimeout, append(w.askingLoops(), w.renewer.Loop)...)
	return cmp.Or(err, w.database.Hanging(stallAfter(w.config)))
}

// Started returns an error until Run has begun and one call to the database has ended, successfully
// or not. So a database that is down does not keep a process from starting.
func (w *Worker) Started() error { return w.life.Started("database", w.database.WasCalled()) }

// Ready returns an error unless Run is running and its context has not ended. A database that is
// down does not make a worker unready, because all workers would be unready at once.
func (w *Worker) Ready() error { return w.life.Ready() }

// Checks returns checks by name, so that a Worker is a health.Source. A worker with a failing check
// is degraded, but can serve. The name of a check describes the healthy state. Its error says what
// is wrong and what to do. Checks read only memory. The checks of runs and handlers cover the whole
// fleet. They use data that is read from the database about every half minute, and pass if that
// data is more than two minutes old. Checks fail for these reasons:
//
//   - database-answers: the database has not answered three times in a row, or calls of one kind
//     have failed for longer than three times CallTimeout
//   - leases-renewed: a lease of this worker went without a renewal for two thirds of its length,
//     and no renewal has succeeded since
//   - runs-on-time: a run or a tick has been due for longer than MaxDueAge
//   - few-dead-runs: there are more dead letters than MaxDead allows
//   - handlers-have-workers: runs wait for a handler that no worker has
//   - limits-unlocked: another session keeps the row of a limit locked, so that its runs wait
//   - schedules-work: a schedule of this worker fails or does not return
func (w *Worker) Checks() map[string]func() error {
	return map[string]func() error{
		"database-answers": lifecycle.Advised(w.database.Working,
			"runs in progress continue, and their results wait: check the database and the network"),
		"leases-renewed": lifecycle.Advised(w.leasesRenewed,
			"another worker may start these runs again: check for a slow database and for a process short of "+
				"processor time"),
		"runs-on-time": w.runsStart,
		"few-dead-runs": lifecycle.Advised(w.fewDead, "\"tickslot dead ls\" has their errors, and \"tickslot requeue "+
			"durable\" runs them again"),
		"handlers-have-workers": lifecycle.Advised(w.handlersKnown, "start a process that registers it, or cancel its "+
			"runs"),
		"limits-unlocked": lifecycle.Advised(w.claimer.limitsFree, "end the transaction of that session"),
		"schedules-work": lifecycle.Advised(w.schedulesWork, "it queues nothing until its Next returns: fix it in "+
			"the code"),
	}
}

func (w *Worker) leasesRenewed() error {
	if w.book.renewedLately() {
		return nil
	}
	return errors.Join(errors.New("no lease was renewed for two thirds of its length, so nothing new is claimed"),
		w.database.FailureOf(opRenew).Err)
}

func (w *Worker) runsStart() error {
	stats, fresh := w.sampler.Latest()
	if !fresh || w.config.MaxDueAge == NoLimit {
		return nil
	}
	var errs []error
	late := func(at time.Time) time.Duration {
		if at.IsZero() || stats.Now.Sub(at) <= w.config.MaxDueAge {
			return 0
		}
		return stats.Now.Sub(at).Round(time.Second)
	}
	for _, h := range stats.ByHandler {
		if age := late(h.OldestDue); age > 0 && !h.Paused {
			why := "the workers that have it are busy, or its limit is reached: add workers, or raise MaxRuns or " +
				"MaxConcurrency"
			if unseen(h, stats.Now) {
				why = "no worker that has it is alive: start one"
			}
			errs = append(errs, fmt.Errorf("handler %q: a run has been due for %v, and %s: %s", h.Handler, age,
				plural(h.Queued, "no other waits", "%d wait"), why))
		}
	}
	if age := late(stats.Overdue); age > 0 {
		errs = append(errs,
			fmt.Errorf("a tick has been due for %v, and no worker has queued its run: check that a worker with "+
				"this schedule is alive", age))
	}
	return errors.Join(errs...)
}

func (w *Worker) fewDead() error {
	stats, fresh := w.sampler.Latest()
	if !fresh || w.config.MaxDead == 0 {
		return nil
	}
	var dead int64
	var of []string
	for _, h := range stats.ByHandler {
		if h.Dead > 0 {
			dead += h.Dead
			of = append(of, fmt.Sprintf("%s: %d", h.Handler, h.Dead))
		}
	}
	if dead <= int64(w.config.MaxDead) {
		return nil
	}
	return fmt.Errorf("%d dead letters, more than %d: %v", dead, w.config.MaxDead, of)
}

// handlersKnown returns an error that names each handler whose runs wait because no worker has it.
func (w *Worker) handlersKnown() error {
	stats, fresh := w.sampler.Latest()
	if !fresh {
		return nil
	}
	handlers, _ := w.parts()
	var errs []error
	for _, h := range stats.ByHandler {
		if h.Queued > 0 && handlers[h.Handler] == nil && unseen(h, stats.Now) {
			errs = append(errs, fmt.Errorf("no worker knows handler %q: %s", h.Handler,
				plural(h.Queued, "1 run waits", "%d runs wait")))
		}
	}
	return errors.Join(errs...)
}

func unseen(h store.HandlerStats, now time.Time) bool {
	return h.SeenAt.IsZero() || now.Sub(h.SeenAt) > unseenAfter
}

func (w *Worker) schedulesWork() error {
	faults := w.materializer.faulty()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		errs = append(errs, fmt.Errorf("schedule %q: %s", name, faults[name]))
	}
	return errors.Join(errs...)
}

// Runners shows the Worker with its phase and its loops, so that the Worker is a cluster.Runner. It
// reads only memory.
func (w *Worker) Runners(show func(kind, name, state string, changedAt time.Time, err error)) {
	p, changedAt := w.life.Current()
	show("worker", w.config.Name, string(p), changedAt, nil)
	for _, part := range []struct{ name, op string }{{"materializer", opMaterialize}, {"claimer", opClaim},
		{"renewer", opRenew}, {"finisher", opFinish}, {"reclaimer", opReclaim}, {"sweeper", opSweep}} {
		state, last := "working", w.database.FailureOf(part.op)
		if last.Err != nil {
			state = "failing"
		}
		show(part.name, "", state, last.Since, last.Err)
	}
}
