package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/durable/internal/store"
)

const (
	maxPause     = 10 * 366 * day
	maxActive    = 1_000_000
	requeueBatch = 1_000 // bounds the duration of the statement
)

// A Control changes handlers, schedules and runs in the whole fleet at run time, through the
// database. Workers do not have to be reachable. They apply a change with their next claim,
// materialization or renewal. The database keeps a pause or a limit until it is changed. Each call
// takes a driver.Cause, which says who makes the change and why. Each of the two texts has at most
// 256 bytes.
//
// Handlers and schedules that no worker has ever had can be changed, too, because they may be
// deployed later. The name may also be misspelled, so such a change is logged as a warning to
// slog.Default().
//
// After an error, the change may or may not have been made: call again. All calls except Trigger
// are idempotent.
//
// Store.Control returns it.
type Control struct{ store *Store }

// Control returns a Control for the workers that share a store.
func (s *Store) Control() *Control { return &Control{s} }

// Pause keeps runs of a handler from being claimed until the given time, at most ten years ahead.
// Runs in progress continue, and further runs that are triggered or come due are queued. A second
// pause replaces the first. The duration of the pause is computed with this host's clock and
// measured by the database's.
func (c *Control) Pause(ctx context.Context, handler string, until time.Time, by driver.Cause) error {
	left := time.Until(until)
	return c.setHandler(ctx, handler, store.Override{PausedUntil: &left}, by, checkPause(left, until))
}

// Resume ends the pause of a handler. It has no effect if the handler is not paused.
func (c *Control) Resume(ctx context.Context, handler string, by driver.Cause) error {
	return c.setHandler(ctx, handler, store.Override{PausedUntil: new(time.Duration)}, by, nil)
}

func checkPause(left time.Duration, until time.Time) error {
	switch {
	case left <= 0:
		return fmt.Errorf("a pause until %s is over: choose a later time", until.Format(time.RFC3339))
	case left > maxPause:
		return fmt.Errorf("a pause until %s: use ten years at most", until.Format(time.RFC3339))
	}
	return nil
}

// SetMaxConcurrency overrides HandlerOptions.MaxConcurrency with n for all workers. The override
// applies as soon as the call returns. n is 1 to 10,000, or 0 to start no run. Runs in progress
// continue, and no further run is claimed until fewer than n are running.
func (c *Control) SetMaxConcurrency(ctx context.Context, handler string, n int, by driver.Cause) error {
	var fault error
	if n < 0 || n > maxRuns {
		fault = fmt.Errorf("MaxConcurrency %d: use 0 to %d", n, maxRuns)
	}
	return c.setHandler(ctx, handler, store.Override{MaxConcurrency: &n}, by, fault)
}

// ResetMaxConcurrency removes the override, so that HandlerOptions.MaxConcurrency applies again.
func (c *Control) ResetMaxConcurrency(ctx context.Context, handler string, by driver.Cause) error {
	return c.setHandler(ctx, handler, store.Override{MaxConcurrency: new(-1)}, by, nil)
}

func (c *Control) setHandler(ctx context.Context, handler string, change store.Override, by driver.Cause,
	fault error) error {
	if err := c.check(ctx, by, checkName(handler), fault); err != nil {
		return fmt.Errorf("durable: handler %.60q: %w", handler, err)
	}
	change.By = store.Cause(by)
	if err := c.store.store.SetHandler(ctx, handler, change); err != nil {
		return fmt.Errorf("durable: handler %q: %w", handler, err)
	}
	rows, err := c.store.store.Handlers(ctx)
	warnIfUnseen("handler", handler, err, slices.ContainsFunc(rows, func(r store.HandlerRow) bool {
		return r.Name == handler && !r.SeenAt.IsZero()
	}))
	return nil
}

// check returns why a change must not be made, or nil.
func (c *Control) check(ctx context.Context, by driver.Cause, faults ...error) error {
	if err := c.store.ready(ctx); err != nil {
		return err
	}
	return errors.Join(append(faults, by.Validate())...)
}

// checkName returns what is wrong with the name of a handler or a schedule.
func checkName(name string) (err error) {
	checkText(name, "name", func(field, format string, args ...any) {
		err = fmt.Errorf("%s: "+format, append([]any{field}, args...)...)
	})
	return err
}

func warnIfUnseen(what, name string, err error, seen bool) {
	if err == nil && !seen {
		slog.Default().Warn("durable: no worker knows the name that was changed: check its spelling",
			what, name)
	}
}

// PauseSchedule keeps a schedule from queueing runs until the given time, at most ten years ahead.
// Ticks that come due during the pause, by the database's clock, count as paused and are not caught
// up, even if no worker was running. Ticks that were due before the pause still run, and so do
// queued runs. Pausing a paused schedule moves the end of its pause. Only the latest pause is
// remembered. If no worker has run since an earlier pause, the ticks of that pause count as missed,
// and CatchUp decides about them.
func (c *Control) PauseSchedule(ctx context.Context, schedule string, until time.Time, by driver.Cause) error {
	left := time.Until(until)
	return c.setSchedule(ctx, schedule, left, by, checkPause(left, until))
}

// ResumeSchedule ends the pause of a schedule. It has no effect if the schedule is not paused.
func (c *Control) ResumeSchedule(ctx context.Context, schedule string, by driver.Cause) error {
	return c.setSchedule(ctx, schedule, 0, by, nil)
}

func (c *Control) setSchedule(ctx context.Context, schedule string, left time.Duration, by driver.Cause,
	fault error) error {
	if err := c.check(ctx, by, checkName(schedule), fault); err != nil {
		return fmt.Errorf("durable: schedule %.60q: %w", schedule, err)
	}
	change := store.Override{PausedUntil: &left, By: store.Cause(by)}
	if err := c.store.store.SetSchedule(ctx, schedule, change); err != nil {
		return fmt.Errorf("durable: schedule %q: %w", schedule, err)
	}
	rows, err := c.store.store.Schedules(ctx)
	warnIfUnseen("schedule", schedule, err, slices.ContainsFunc(rows, func(r store.ScheduleRow) bool {
		return r.Name == schedule && !r.SeenAt.IsZero()
	}))
	return nil
}

// SetMaxActive overrides Config.MaxActive with n for all workers, including those without a
// MaxActive. The override applies as soon as the call returns. n is 1 to 1,000,000, or 0 to start
// no run. Runs in progress continue.
func (c *Control) SetMaxActive(ctx context.Context, n int, by driver.Cause) error {
	var fault error
	if n < 0 || n > maxActive {
		fault = fmt.Errorf("%d: use 0 to %d", n, maxActive)
	}
	return c.setMaxActive(ctx, n, by, fault)
}

// ResetMaxActive removes the override, so that Config.MaxActive applies again.
func (c *Control) ResetMaxActive(ctx context.Context, by driver.Cause) error {
	return c.setMaxActive(ctx, -1, by, nil)
}

func (c *Control) setMaxActive(ctx context.Context, n int, by driver.Cause, fault error) error {
	if err := c.check(ctx, by, fault); err != nil {
		return fmt.Errorf("durable: MaxActive: %w", err)
	}
	return named(c.store.store.SetHandler(ctx, "", store.Override{MaxConcurrency: &n, By: store.Cause(by)}))
}

// Cancel ends a run for good, and returns its state before the call. A queued run is canceled
// immediately. The context of a running run ends (ErrCanceled) when its worker next renews its
// leases, within Config.TTL/3; the run is not retried. If its handler returns nil before that, the
// run succeeds. A dead letter is discarded: it becomes a canceled run and no longer counts as dead.
// A run that has already succeeded or been canceled does not change. If the run does not exist, the
// error matches ErrNoRun.
func (c *Control) Cancel(ctx context.Context, id int64, by driver.Cause) (was State, err error) {
	if err := c.check(ctx, by); err != nil {
		return "", fmt.Errorf("durable: run %d: %w", id, err)
	}
	state, err := c.store.store.Cancel(ctx, id, store.Cause(by))
	if err == nil && state == "" {
		err = fmt.Errorf("%w: %d", ErrNoRun, id)
	}
	return State(state), named(err)
}

// Requeue queues dead letters again, due immediately, each with as many attempts and as much time
// as its handler allows. Waits between attempts begin with Retry.FirstWait again, and attempt
// numbers continue from the last one. Requeue processes 1,000 runs per transaction, newest first,
// and returns how many it has queued. After an error it may have queued more. It queues canceled
// runs only if the filter names their state, and refuses other states.
func (c *Control) Requeue(ctx context.Context, which RunFilter, by driver.Cause) (int, error) {
	fault := which.check()
	if len(which.States) == 0 {
		which.States = []State{StateDead}
	}
	for _, s := range which.States {
		if s != StateDead && s != StateCanceled {
			fault = errors.Join(fault, fmt.Errorf("runs that are %s cannot be queued again: use StateDead or "+
				"StateCanceled", s))
		}
	}
	if err := c.check(ctx, by, fault); err != nil {
		return 0, fmt.Errorf("durable: requeue: %w", err)
	}
	// The loop visits each run once, so it ends even if requeued runs become dead letters again.
	all := 0
	for rest := which.inStore(); ; {
		n, beforeID, err := c.store.store.Requeue(ctx, rest, store.Cause(by), requeueBatch)
		all += n
		if err != nil || beforeID == 0 {
			return all, named(err)
		}
		rest.BeforeID = beforeID
	}
}

// Forget deletes the row of a schedule that was removed from the code. It returns false if the row
// does not exist. The schedule's runs are kept. If a worker still has the schedule, the worker
// registers it again within a minute as a new schedule, without its pause and history.
func (c *Control) Forget(ctx context.Context, schedule string, by driver.Cause) (bool, error) {
	if err := c.check(ctx, by, checkName(schedule)); err != nil {
		return false, fmt.Errorf("durable: schedule %.60q: %w", schedule, err)
	}
	ok, err := c.store.store.Forget(ctx, schedule)
	return ok, named(err)
}

// Trigger queues a run of a handler in its own transaction: see Store.Trigger. TriggerOptions.By is
// required.
func (c *Control) Trigger(ctx context.Context, handler string, payload []byte, options TriggerOptions) (id int64,
	err error) {
	if err := options.By.Validate(); err != nil {
		return 0, fmt.Errorf("durable: handler %.60q: not triggered: %w", handler, err)
	}
	return c.store.Trigger(ctx, nil, handler, payload, options)
}
