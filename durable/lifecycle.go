package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/lifecycle"
	"github.com/tickslot/tickslot/internal/loop"
)

// Run works until ctx ends, and then drains. Ready fails immediately, PreStopDelay passes, and then
// no further run starts. Handlers have DrainTimeout to finish. Then their contexts end, and they
// have another CancelGrace to return. Run writes their results, gives interrupted runs back, and
// allows queued hook calls HookGrace. Then Run returns nil, a *StuckError, or an error that says
// how many results could not be written, because the database did not answer or another session
// kept the rows locked. Those runs are executed again when their leases have expired. When Run has
// returned, its metrics are unregistered and the Worker has no goroutines left, except those that a
// StuckError names and driver calls that ignore their contexts. Run can be called only once.
//
// If Check finds faults, Run returns them and starts nothing; create another Worker then. If the
// database answers but is not set up correctly, for example because Store.Migrate was not called,
// Run returns an error that matches dlock.ErrSetup. If the database does not answer, Run retries
// until it does.
//
// Before it starts anything, Run calls the function passed to AdmitBy, such as Admit of a
// cluster.Registry. If the function refuses this process, Run starts nothing and returns the error.
// If it refuses the process later, Run ends as if ctx had ended, but without PreStopDelay.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.life.Begin(ctx); err != nil {
		return err
	}
	if w.metrics != nil {
		defer w.config.Registerer.Unregister(w.metrics)
	}
	if faults := w.Check(); faults != nil {
		w.life.Enter(lifecycle.Stopped)
		return faults
	}
	return w.life.Work(ctx, w.run)
}

// AdmitBy makes Run call ask before it claims a run. An error of ask keeps Run from starting, and a
// later call of refused stops it. Ready and Started return the error, too. Registry.Add of package
// cluster calls AdmitBy, so that a process connected to the database of another environment claims
// no run.
func (w *Worker) AdmitBy(ask func(ctx context.Context, refused func(error)) (stop func(), err error)) {
	w.life.AdmitBy(ask)
}

func (w *Worker) run(ctx context.Context) error {
	life, endLife := context.WithCancel(context.WithoutCancel(ctx))
	base, endRuns := context.WithCancelCause(context.WithoutCancel(ctx))
	defer endLife()
	defer endRuns(nil)
	w.begin(life, base)
	err := w.registrar.first(ctx, w.store.store.Verify)
	switch {
	case err == nil:
		err = w.work(ctx, endLife, endRuns)
	case ctx.Err() != nil:
		err = nil
	default:
		err = fmt.Errorf("durable: nothing was started: the database (%s) is not usable: %w", w.database.Name(),
			err)
	}
	w.life.Enter(lifecycle.Stopped)
	if hook := w.events.Close(HookGrace); hook != "" {
		err = withHook(err, hook)
	}
	return err
}

// withHook adds the hook that has not returned to Run's error.
func withHook(err error, hook string) error {
	if stuck, ok := errors.AsType[*StuckError](err); ok {
		stuck.Hook = hook
		return err
	}
	return errors.Join(err, &StuckError{Hook: hook})
}

// begin passes to the parts the contexts that exist only once Run has begun.
func (w *Worker) begin(life, base context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.database.Begin(life)
	w.runner.base, w.runner.handlers = base, w.handlers
	w.materializer.schedules = w.schedules
	w.claimer.request = store.ClaimRequest{Worker: w.config.Name, MaxActive: w.config.MaxActive, TTL: w.config.TTL,
		Patience: w.config.ClaimInterval}
	for _, name := range slices.Sorted(maps.Keys(w.handlers)) {
		w.claimer.request.Handlers = append(w.claimer.request.Handlers, w.handlers[name].row())
	}
	w.registrar.handlers = w.claimer.request.Handlers
	for _, name := range slices.Sorted(maps.Keys(w.schedules)) {
		w.registrar.schedules = append(w.registrar.schedules, w.schedules[name].row())
	}
	w.life.Enter(lifecycle.Running)
	w.events.AskDebug()
	w.events.Log(slog.LevelInfo, "durable: worker started", "worker", w.config.Name, "handlers", len(w.handlers),
		"schedules", len(w.schedules), "max_runs", w.config.MaxRuns, "ttl", w.config.TTL)
}

// work runs the parts until ctx ends, and then drains.
func (w *Worker) work(ctx context.Context, endLife func(), endRuns context.CancelCauseFunc) error {
	var asking, writing sync.WaitGroup
	writes, stopWriting := context.WithCancel(context.Background())
	asks, endAsks := context.WithCancel(w.database.Life())
	defer stopWriting()
	defer endAsks()
	for _, l := range w.askingLoops() {
		asking.Go(func() { l.Run(asks) })
	}
	asking.Go(func() { w.sweeper.Run(asks, nil) })
	asking.Go(func() { w.listen(asks) })
	writing.Go(func() { w.renewer.Run(writes) })
	writing.Go(func() { w.finisher.run(writes) })

	<-ctx.Done()
	draining := time.Now()
	w.events.Log(slog.LevelInfo, "durable: draining", "cause", context.Cause(ctx))
	w.life.Enter(lifecycle.PreStop)
	if w.life.Refused() == nil {
		time.Sleep(w.config.PreStopDelay)
	}
	w.life.Enter(lifecycle.Draining)
	w.claimer.draining.Store(true)
	endAsks()
	idle := make(chan struct{})
	writing.Go(func() {
		asking.Wait() // for calls in progress: the worker gives back runs that such a claim returns
		select {
		case <-w.book.whenEmpty():
			close(idle)
		case <-writes.Done():
		}
	})
	var stuck []string
	unwritten := 0
	if !w.drain(idle, endRuns) {
		w.runner.gaveUp.Store(true)
		stuck, unwritten = w.book.giveUp()
	}
	stopWriting()
	endLife()
	writing.Wait()
	w.events.Log(slog.LevelInfo, "durable: worker stopped", "worker", w.config.Name, "drain", time.Since(draining),
		"still_running", lifecycle.StillRunning(stuck))
	return w.left(stuck, unwritten)
}

// listen wakes the claimer when another process has queued runs, if the database supports
// notifications. Notifications are hints: polling finds runs whose notification is lost.
func (w *Worker) listen(ctx context.Context) {
	lifecycle.KeepListening(ctx,
		func(ctx context.Context) error { return w.store.store.Listen(ctx, w.claimer.Wake) },
		func(err error) {
			w.events.Log(slog.LevelDebug, "durable: the listening connection ended: polling continues", "err", err)
		})
}

// askingLoops are the loops that look for work. They end when draining begins.
func (w *Worker) askingLoops() []*loop.Loop {
	return []*loop.Loop{w.claimer.Loop, w.reclaimer.Loop, w.materializer.Loop, w.registrar.Loop, w.sampler.Loop}
}

// drain waits for the handlers and their results. After DrainTimeout, it ends the contexts of the
// remaining handlers. It returns false if these handlers have not ended within another CancelGrace.
func (w *Worker) drain(idle <-chan struct{}, endRuns context.CancelCauseFunc) bool {
	return lifecycle.Drain(idle, w.config.DrainTimeout, func() {
		if n := len(w.book.list()); n > 0 {
			w.events.Log(slog.LevelWarn, "durable: handlers did not finish within DrainTimeout; ending their contexts",
				"drain_timeout", w.config.DrainTimeout, "runs", n)
		}
		endRuns(ErrDraining)
	}, CancelGrace)
}

// left returns an error that names the handlers and counts the results that are left when Run ends.
func (w *Worker) left(stuck []string, unwritten int) error {
	var errs []error
	if unwritten > 0 {
		_, _, err := w.database.Status()
		if err == nil {
			err = errRowLocked
		}
		errs = append(errs, fmt.Errorf("durable: %s: %w", plural(int64(unwritten),
			"the result of 1 run could not be written, so it is run again when its lease has expired",
			"the results of %d runs could not be written, so they are run again when their leases have expired"), err))
	}
	if schedules := w.materializer.stuck(); len(stuck) > 0 || len(schedules) > 0 {
		errs = append(errs, &StuckError{Handlers: stuck, Schedules: schedules})
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
