// Package control changes the timers of a running fleet through its store. It pauses timers,
// overrides their MaxConcurrency, triggers them and cancels runs. It works without a
// timer.Scheduler. The page of the fleet registry and the command line also use it.
//
//	c := control.New(control.Config{Store: store})
//	err := c.Pause(ctx, "nightly-report", time.Now().Add(time.Hour), driver.Cause{By: "ann"})
//
// In a program that runs timers, timer.Scheduler.Control returns a Control for its fleet.
package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/timer/internal/fleet"
)

var (
	// ErrNoControl is returned if the store of a Control is nil or cannot keep overrides, as
	// nativelock and redlock cannot.
	ErrNoControl = errors.New("timer: no control: the store keeps no overrides (redislock, sqllock with a table, " +
		"and memlock do)")

	// ErrNoRun is returned by CancelRun and CancelSlot if no matching run is in progress.
	ErrNoRun = errors.New("timer: no such run is in progress")
)

// DefaultTimeout is the default of Config.Timeout. It is longer than the StoreTimeout of a
// scheduler, because the first call also connects.
const DefaultTimeout = 5 * time.Second

// A Config has the settings of a Control.
type Config struct {
	// Store is the store of the fleet. Default nil: all calls return ErrNoControl, as with a store
	// that cannot keep overrides.
	Store dlock.DistributedLock

	// Timeout bounds each call to the store. A method may make several calls. The Control of a
	// Scheduler uses the scheduler's StoreTimeout. Default 5 s.
	Timeout time.Duration

	// Logger receives messages for operators, such as a change to a timer that no host has. Default
	// slog.Default().
	Logger *slog.Logger

	// Local reports whether this process has registered a timer, and whether the timer is LocalOnly
	// there. Hosts do not read triggers of a LocalOnly timer from the store.
	// timer.Scheduler.Control sets Local; leave it nil otherwise. Default nil: nothing is known
	// about this process.
	Local func(timer string) (registered, localOnly bool)
}

// A Control changes timers in the whole fleet at run time. It writes to the store, so the caller
// need not reach the hosts. Hosts apply a change at their next tick, or when they next renew their
// leases (every TTL/3 of the scheduler). A change also binds a host that was suspended in the
// meantime: when the host resumes, the store refuses its starts. The store keeps a pause or a limit
// until it is changed, unless the store loses its data. Each call takes a driver.Cause, which says
// who makes the change and why, in at most 256 bytes each. A Control does not affect LocalOnly
// timers. All methods may be called concurrently.
//
// A timer can be changed even if no host is known to run it, because it may be deployed later. The
// name may also be misspelled, so the Control logs a warning for such a change: see Known.
//
// After an error, the change may or may not be in effect. Repeat the call. All calls except Trigger
// are idempotent.
type Control struct {
	caps    driver.Capabilities
	timeout time.Duration
	log     *slog.Logger
	local   func(timer string) (registered, localOnly bool)
}

// New returns a Control for the fleet that uses the store. New does not call the store.
func New(config Config) *Control {
	c := &Control{caps: driver.CapabilitiesOf(config.Store), timeout: config.Timeout, log: mask.Logger(config.Logger),
		local: config.Local}
	if c.timeout <= 0 {
		c.timeout = DefaultTimeout
	}
	if c.local == nil {
		c.local = func(string) (registered, localOnly bool) { return false, false }
	}
	return c
}

// Pause prevents a timer from starting on any host until the given time, at most ten years ahead.
// Runs in progress continue. Ticks that come due during the pause are skipped (timer.ReasonPaused)
// and do not count as missed. A second pause replaces the first. This host's clock determines the
// length of the pause, and the store's clock measures it.
func (c *Control) Pause(ctx context.Context, timer string, until time.Time, by driver.Cause) error {
	left := time.Until(until)
	if left <= 0 {
		return fmt.Errorf("timer %q: a pause until %s is over: choose a later time", timer, until.Format(time.RFC3339))
	}
	return c.update(ctx, timer, driver.Update{Pause: &driver.Pause{Cause: by, For: left}})
}

// Resume ends a pause. It has no effect on a timer that is not paused.
func (c *Control) Resume(ctx context.Context, timer string, by driver.Cause) error {
	return c.update(ctx, timer, driver.Update{Resume: &by})
}

// SetMaxConcurrency overrides timer.Timer.MaxConcurrency with n on all hosts. Hosts apply n at
// their next tick; a host that has reached its old limit does so within a heartbeat. n is 1 to
// 10,000, or 0, which starts nothing. If MaxPerHost is not set, it follows n; otherwise it does not
// change. MaxPerTick never changes: more runs may overlap, but no tick starts more runs. If n is
// lower than before, runs in progress continue, and no run starts until fewer than n are in
// progress. As with Pause, ticks that come due while n is 0 do not count as missed.
func (c *Control) SetMaxConcurrency(ctx context.Context, timer string, n int, by driver.Cause) error {
	if n < 0 || n > driver.MaxSlots {
		return fmt.Errorf("timer %q: MaxConcurrency %d: use 0 to %d", timer, n, driver.MaxSlots)
	}
	return c.update(ctx, timer, driver.Update{Limit: &driver.LimitOverride{Cause: by, Slots: n}})
}

// ResetMaxConcurrency removes the override, so that timer.Timer.MaxConcurrency applies again.
func (c *Control) ResetMaxConcurrency(ctx context.Context, timer string, by driver.Cause) error {
	return c.update(ctx, timer, driver.Update{ResetLimit: &by})
}

// CancelRun cancels a run on any host, at most once. To cancel a run on this host immediately, call
// timer.Scheduler.CancelRun. id is the run's timer.Run.ID. The host of the run receives the
// cancellation with its next heartbeat, within a third of its timer.Config.TTL, and logs who
// canceled the run. From then on the run is not Valid. The cause of its context is a
// *timer.CanceledError, which also matches dlock.ErrLost. The slot becomes free when the handler
// has returned or the lease has ended, not before. CancelRun does not extend the lease of a host
// that is dead or suspended.
//
// A host that cannot reach the store does not receive the cancellation. Within the TTL that host
// stops trusting the lease. It then ends the run or, with timer.StoreDownRunLocal, continues the
// run without the store.
//
// CancelRun returns ErrNoRun if the run has ended. It also returns ErrNoRun for a run that began
// without a slot in the store, or lost its slot in an outage. CancelSlot or
// timer.Scheduler.CancelRun may find that run.
func (c *Control) CancelRun(ctx context.Context, timer, id string, by driver.Cause) error {
	slot, fence, ok := fleet.ParseRunID(id)
	if !ok {
		if _, err := c.controller(); err != nil {
			return err
		}
		return fmt.Errorf("timer %q: run %q: %w in a slot that it began with: cancel it by its slot or on its host",
			timer, id, ErrNoRun)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return c.revoke(ctx, timer, slot, fence, by)
}

// CancelSlot is like CancelRun, but cancels the run that currently holds a slot. It returns
// ErrNoRun if no run holds the slot.
func (c *Control) CancelSlot(ctx context.Context, timer string, slot int, by driver.Cause) error {
	if _, err := c.controller(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*c.timeout)
	defer cancel()
	held, err := c.held(ctx, timer)
	if err != nil {
		return err
	}
	for _, h := range held {
		if h.Slot == slot {
			return c.revoke(ctx, timer, slot, h.Fence, by)
		}
	}
	return fmt.Errorf("timer %q: slot %d: %w", timer, slot, ErrNoRun)
}

func (c *Control) revoke(ctx context.Context, timer string, slot int, fence dlock.Fence, by driver.Cause) error {
	ctl, err := c.controller()
	if err != nil {
		return err
	}
	err = guard.Call("store", func() error { return ctl.Revoke(ctx, fleet.TimerLock(timer), slot, fence, by) })
	if guard.Is(err, driver.ErrNotHeld) {
		err = ErrNoRun
	}
	if err != nil {
		return fmt.Errorf("timer %q: slot %d: %w", timer, slot, err)
	}
	return nil
}

// Inspect returns the overrides of a timer, and the latest tick that a host has claimed.
func (c *Control) Inspect(ctx context.Context, timer string) (driver.ControlState, error) {
	ctl, err := c.controller()
	if err != nil {
		return driver.ControlState{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	list, err := fleet.Inspect(ctx, ctl, []string{fleet.TimerLock(timer)})
	if err == nil {
		err = list[0].Err
	}
	if err != nil {
		return driver.ControlState{}, fmt.Errorf("timer %q: %w", timer, err)
	}
	list[0].Name = timer
	return list[0], nil
}

// InspectAll is like Inspect for several timers. It makes one call to the store (on a Redis
// Cluster, one per node). The states are in the order of the arguments. If the state of a timer is
// not known, its ControlState.Err says why.
func (c *Control) InspectAll(ctx context.Context, timers ...string) ([]driver.ControlState, error) {
	ctl, err := c.controller()
	if err != nil {
		return nil, err
	}
	list, locks, at := make([]driver.ControlState, len(timers)), []string(nil), []int(nil)
	for i, name := range timers {
		list[i].Name = name
		lock := fleet.TimerLock(name)
		if list[i].Err = driver.CheckName(lock); list[i].Err == nil {
			locks, at = append(locks, lock), append(at, i)
		}
	}
	if len(locks) == 0 {
		return list, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	states, err := fleet.Inspect(ctx, ctl, locks)
	if err != nil {
		return nil, fmt.Errorf("%d timers: %w", len(timers), err)
	}
	for k, state := range states {
		state.Name = timers[at[k]]
		list[at[k]] = state
	}
	return list, nil
}

// Known reports whether any host is known to run the timer. That is the case if this Control's
// Scheduler has registered it, or if the store knows that a host has claimed one of its ticks, has
// started one of its triggers, or holds one of its slots. A timer that has not run yet, or has no
// limit that needs the store, is therefore not known. Known makes up to three calls to the store.
func (c *Control) Known(ctx context.Context, timer string) (bool, error) {
	if registered, _ := c.local(timer); registered {
		return true, nil
	}
	ctl, err := c.controller()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*c.timeout)
	defer cancel()
	states, err := fleet.Inspect(ctx, ctl, []string{fleet.TimerLock(timer)})
	if err == nil {
		err = states[0].Err
	}
	if err != nil {
		return false, fmt.Errorf("timer %q: %w", timer, err)
	}
	if !states[0].LastTick.IsZero() {
		return true, nil
	}
	if held, err := c.held(ctx, timer); len(held) > 0 || err != nil {
		return len(held) > 0, err
	}
	triggers, _, _, err := (fleet.Queues{Store: ctl, Timeout: c.timeout}).Read(ctx, timer)
	if err != nil {
		return false, fmt.Errorf("timer %q: %w", timer, err)
	}
	return triggers.Ran, nil
}

// held returns the leases of a timer's slots.
func (c *Control) held(ctx context.Context, timer string) (list []driver.LeaseInfo, err error) {
	lister := c.caps.Lister
	if lister == nil {
		return nil, ErrNoControl
	}
	err = guard.Call("store", func() (err error) {
		list, err = lister.List(ctx, fleet.TimerLock(timer), driver.MaxSlots)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("timer %q: %w", timer, err)
	}
	return list, nil
}

func (c *Control) controller() (driver.Controller, error) {
	if c.caps.Controller == nil {
		return nil, ErrNoControl
	}
	return c.caps.Controller, nil
}

func (c *Control) update(ctx context.Context, timer string, change driver.Update) error {
	ctl, err := c.controller()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*c.timeout)
	defer cancel()
	// Update the timer first, so that a host that sees the new version of fleet.HostsLock finds the
	// change.
	if err := guard.Call("store", func() error { return ctl.Update(ctx, fleet.TimerLock(timer), change) }); err != nil {
		return fmt.Errorf("timer %q: %w", timer, err)
	}
	err = guard.Call("store", func() error { return ctl.Update(ctx, fleet.HostsLock, driver.Update{}) })
	if err != nil {
		return fmt.Errorf("timer %q: the store has the change, but hosts could not be notified: limits and pauses "+
			"apply from the next tick: %w",
			timer, err)
	}
	if known, err := c.Known(ctx, timer); err == nil && !known {
		c.log.Warn("timer: changed a timer that has not run yet, or that no host has: check its spelling",
			"timer", timer)
	}
	return nil
}
